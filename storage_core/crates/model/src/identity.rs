//! Identities that are never handed out twice, and the small number of a node.

use std::fmt;

use uuid::Uuid;

/// Declares an identity: a UUID of a type of its own.
macro_rules! identity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
        pub struct $name(pub Uuid);

        impl $name {
            /// The identity with these 128 bits.
            #[must_use]
            pub const fn from_u128(bits: u128) -> Self {
                Self(Uuid::from_u128(bits))
            }

            /// The identity that 16 bytes have, as they travel between brokers; `None` where there are not 16.
            #[must_use]
            pub fn from_slice(bytes: &[u8]) -> Option<Self> {
                Uuid::from_slice(bytes).ok().map(Self)
            }

            /// Its 16 bytes.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }

            /// Its 128 bits.
            #[must_use]
            pub const fn as_u128(&self) -> u128 {
                self.0.as_u128()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

identity! {
    /// A segment. Its number and its epoch may be handed out twice, after a rollback of the metadata; this cannot (R6).
    SegmentId
}

identity! {
    /// A topic: to delete `t` and to create `t` again makes another topic.
    TopicId
}

identity! {
    /// The incarnation of a disk: an emptied disk is another one and owns nothing (R11).
    DiskId
}

identity! {
    /// The incarnation of a process: minted at each start.
    ProcessId
}

identity! {
    /// One attempt to decide a segment's end. [`AttemptId::WRITER`] is the writer's own.
    AttemptId
}

impl AttemptId {
    /// The attempt of ballot 0, which belongs to the process that writes the segment (R3).
    pub const WRITER: Self = Self(Uuid::nil());
}

impl Default for AttemptId {
    fn default() -> Self {
        Self::WRITER
    }
}

/// A node's small integer, Kafka's broker id. The node itself is its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct NodeId(pub u32);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
