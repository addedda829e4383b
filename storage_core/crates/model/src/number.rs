//! Numbers that must not be taken for each other.

use std::fmt;

/// Declares a number of a type of its own.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident($of:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
        pub struct $name(pub $of);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// Place of a record in its partition, dense from 0. Never bytes: that is a *position*.
    Offset(u64)
}

number! {
    /// Grows with every segment and every failover attempt of a partition, and is stored in each batch; a lower one is
    /// refused (*fenced*).
    Epoch(u32)
}

number! {
    /// A number over all batches of a segment up to some offset: equal for equal batches, wherever they are stored.
    Digest(u64)
}
