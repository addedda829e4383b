//! Pages, the unit in which files are written.

/// Bytes of a page: the unit of writes and of alignment, and the size of a block's header.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// Rounds up to whole pages.
pub(crate) const fn page_up(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE_BYTES)
}

/// Rounds down to whole pages.
pub(crate) const fn page_down(bytes: u64) -> u64 {
    bytes - bytes % PAGE_BYTES
}
