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
