//! What differs between two persistent maps, or lists. It costs what differs, where one was made from the other.

use std::iter;
use std::sync::Arc;

use imbl::ordmap::DiffItem;
use imbl::{OrdMap, Vector};

/// Each key whose value `new` has and `old` has not, with that value, and each that only `old` has, with none.
pub(crate) fn differences<'a, K: Ord, V: PartialEq>(
    old: &'a OrdMap<K, V>,
    new: &'a OrdMap<K, V>,
) -> impl Iterator<Item = (&'a K, Option<&'a V>)> {
    old.diff(new).map(|difference| match difference {
        DiffItem::Add(key, value) | DiffItem::Update { new: (key, value), .. } => (key, Some(value)),
        DiffItem::Remove(key, _) => (key, None),
    })
}

/// The places at which two lists do not hold the same value, and those that only one of them has. Values that are equal, but were
/// not shared, count as differing. It costs a comparison of pointers for each place.
pub(crate) fn differing_places<'a, T>(
    old: &'a Vector<Arc<T>>,
    new: &'a Vector<Arc<T>>,
) -> impl Iterator<Item = usize> + use<'a, T> {
    let (longer, shorter) = if old.len() < new.len() { (new, old) } else { (old, new) };
    let others = shorter.iter().map(Some).chain(iter::repeat(None));
    let differs =
        |(one, other): (&Arc<T>, Option<&Arc<T>>)| !other.is_some_and(|other| Arc::ptr_eq(one, other));
    longer.iter().zip(others).enumerate().filter(move |(_, pair)| differs(*pair)).map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Maps of this size have several levels of nodes, most of which two maps share.
    const KEYS: u32 = 5_000;

    fn full() -> OrdMap<u32, u32> {
        (0..KEYS).map(|key| (key, 0_u32)).collect()
    }

    fn found(old: &OrdMap<u32, u32>, new: &OrdMap<u32, u32>) -> BTreeMap<u32, Option<u32>> {
        differences(old, new).map(|(key, value)| (*key, value.copied())).collect()
    }

    #[test]
    fn no_single_change_of_a_large_map_is_passed_over() {
        let old = full();
        for key in 0..KEYS {
            let (changed, removed) = (old.update(key, 1), old.without(&key));
            assert_eq!(found(&old, &changed), BTreeMap::from([(key, Some(1))]));
            assert_eq!(found(&old, &removed), BTreeMap::from([(key, None)]));
            assert_eq!(found(&removed, &old), BTreeMap::from([(key, Some(0))]));
            assert!(old != changed && old != removed, "key {key}");
        }
    }

    #[test]
    fn lists_differ_where_a_value_was_replaced_added_or_taken_away() {
        let old: Vector<Arc<u32>> = (0..200).map(Arc::new).collect();
        let found =
            |old: &Vector<Arc<u32>>, new: &Vector<Arc<u32>>| differing_places(old, new).collect::<Vec<_>>();
        let mut new = old.clone();
        assert!(found(&old, &new).is_empty());
        *Arc::make_mut(new.get_mut(150).unwrap()) += 1;
        *Arc::make_mut(new.get_mut(3).unwrap()) += 1;
        assert_eq!(found(&old, &new), [3, 150]);
        new.push_back(Arc::new(0));
        assert_eq!(found(&old, &new), [3, 150, 200]);
        assert_eq!(found(&new, &old), [3, 150, 200]);
        assert_eq!(found(&Vector::new(), &old).len(), 200);
    }

    proptest! {
        #[test]
        fn what_differs_is_what_a_look_at_every_key_finds(
            changes in prop::collection::vec((0..KEYS + 50, prop::option::of(0..3_u32)), 0..40)
        ) {
            let old = full();
            let mut new = old.clone();
            for (key, value) in changes {
                match value {
                    Some(value) => drop(new.insert(key, value)),
                    None => drop(new.remove(&key)),
                }
            }
            let keys = 0..KEYS + 50;
            let differing = keys.filter(|key| old.get(key) != new.get(key));
            let expected: BTreeMap<_, _> = differing.map(|key| (key, new.get(&key).copied())).collect();
            prop_assert_eq!(old == new, expected.is_empty());
            prop_assert_eq!(found(&old, &new), expected);
        }
    }
}
