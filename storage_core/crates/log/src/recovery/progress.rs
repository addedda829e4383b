//! How far the open of a store is, for whoever waits for it.

use std::sync::atomic::{AtomicU64, Ordering};

/// How far an open is: of the files and logs that it has to look at, how many it has seen. Shared with
/// [`Store::open_told`](crate::Store::open_told), and read at any time.
#[derive(Debug, Default)]
pub struct OpenProgress {
    steps: AtomicU64,
    done: AtomicU64,
}

impl OpenProgress {
    /// How much of the open is done, in percent; `None` before it is known how much there is to do.
    pub fn percent(&self) -> Option<u64> {
        let steps = self.steps.load(Ordering::Acquire);
        // An open may begin anew on a full disk, and then has done more than there is.
        let done = self.done.load(Ordering::Acquire).min(steps);
        (done * 100).checked_div(steps)
    }

    pub(crate) fn expect(&self, steps: usize) {
        self.done.store(0, Ordering::Release);
        self.steps.store(steps as u64, Ordering::Release);
    }

    pub(crate) fn step(&self) {
        self.done.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_told_before_it_is_known_how_much_there_is() {
        assert_eq!(OpenProgress::default().percent(), None);
    }

    #[test]
    fn an_open_that_begins_anew_counts_from_nothing() {
        let progress = OpenProgress::default();
        progress.expect(4);
        (0..3).for_each(|_| progress.step());
        assert_eq!(progress.percent(), Some(75));
        progress.expect(4);
        assert_eq!(progress.percent(), Some(0));
        (0..9).for_each(|_| progress.step());
        assert_eq!(progress.percent(), Some(100));
    }
}
