//! The acknowledgement that the sender of a batch gets.

/// Says where a batch is that is durable and readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendAck {
    /// Offset of its first record.
    pub base_offset: u64,
    /// First offset behind it.
    pub end_offset: u64,
    /// It was stored before, at these offsets.
    pub duplicate: bool,
    /// Time that the leader gave all its records, milliseconds since the epoch, if its topic wants that. For a batch that was
    /// stored before it is not the time that those have.
    pub append_time_ms: Option<i64>,
}
