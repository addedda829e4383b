//! Memory of columns that Python let go of, for the next ones. The kernel clears each page of new memory before it hands
//! it out, and takes it back when megabytes are freed: a tenth of the time in which batches become columns.

use std::sync::Mutex;

/// Sizes that are worth keeping: less is quick to get anyway, more is rare.
const KEPT_BYTES: std::ops::RangeInclusive<usize> = 1 << 20..=16 << 20;
/// Limit on the vectors that are kept: one is filled while Python sends the last one on, and two threads may do so.
const KEPT_MAX: usize = 4;

static SPARE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// Takes an empty vector with room for so many bytes. It never waits, for a thread that is gone, as all others are in a
/// forked child, may have held the lock.
pub(crate) fn take(bytes: usize) -> Vec<u8> {
    let fits = |spare: &Vec<u8>| (bytes..=2 * bytes).contains(&spare.capacity());
    let found = SPARE.try_lock().ok().and_then(|mut spare| {
        let at = spare.iter().position(fits)?;
        Some(spare.swap_remove(at))
    });
    found.unwrap_or_else(|| Vec::with_capacity(bytes))
}

/// Gives memory back: it is kept if its size is worth that, in place of older memory where there is no room.
pub(crate) fn give(mut bytes: Vec<u8>) {
    if !KEPT_BYTES.contains(&bytes.capacity()) {
        return;
    }
    bytes.clear();
    if let Ok(mut spare) = SPARE.try_lock() {
        if spare.len() == KEPT_MAX {
            spare.swap_remove(0); // what stands first may have another size than what is used now
        }
        spare.push(bytes);
    }
}
