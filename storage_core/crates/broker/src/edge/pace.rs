//! The pace that a listener of frames asks of its clients: a frame that has begun must go on at a minimum rate, and an answer must
//! be taken at one.

use std::time::Duration;

use crate::node::patience;
use crate::node::strangers::Silence;

/// A frame or answer gets one second more for each so many bytes.
const BYTES_PER_SECOND_MIN: u64 = 64 << 10;

/// Limits on the time that a client may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// From the connection to its first byte.
    pub(crate) first_byte: Duration,
    /// From the first byte of a frame to its whole length.
    pub(crate) header: Duration,
    /// Between two requests.
    pub(crate) idle: Duration,
}

impl Pace {
    pub(crate) fn new(silence: Silence) -> Self {
        Self { first_byte: silence.first_byte, header: silence.header, idle: silence.idle }
    }

    /// Longest time for a frame or answer of so many bytes.
    pub(crate) fn transfer(bytes: usize) -> Duration {
        patience::TRANSFER + Duration::from_secs(bytes as u64 / BYTES_PER_SECOND_MIN)
    }
}
