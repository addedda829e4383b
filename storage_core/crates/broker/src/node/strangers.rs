//! What somebody who connects may take, whoever it is: places and time.

use std::time::Duration;

/// What a listener admits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caps {
    pub(crate) connections: usize,
    pub(crate) per_address: usize,
}

/// What a stranger may take its time for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Silence {
    /// From the connection to its first byte.
    pub(crate) first_byte: Duration,
    /// From the first byte to the whole header of its protocol.
    pub(crate) header: Duration,
    /// Later, between any two bytes in either direction.
    pub(crate) idle: Duration,
}
