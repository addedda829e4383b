//! What differs between two persistent maps. It costs what differs, where one was made from the other.

use imbl::OrdMap;
use imbl::ordmap::DiffItem;

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
