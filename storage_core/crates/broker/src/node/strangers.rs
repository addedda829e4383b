//! Limits on what somebody who connects may take, whoever it is: places and time.

use std::time::Duration;

/// Limits on the connections that a listener admits at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caps {
    /// All of them together.
    pub(crate) connections: usize,
    /// Those from one address.
    pub(crate) per_address: usize,
}

/// Limits on how long a stranger may say nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Silence {
    /// From the connection to its first byte.
    pub(crate) first_byte: Duration,
    /// From the first byte to the whole header of its protocol.
    pub(crate) header: Duration,
    /// Later, between any two bytes in either direction.
    pub(crate) idle: Duration,
}
