//! Work that waits for the disk, done by several threads: a disk that gets one request at a time is idle most of the
//! time.

use std::panic::resume_unwind;
use std::thread;

use crate::sync::plain::Mutex;

/// How work is shared among threads.
#[derive(Clone, Copy)]
pub(super) struct Share {
    /// Limit on the threads.
    pub(super) threads: usize,
    /// Items that a thread takes at a time; with fewer a thread costs more than it saves.
    pub(super) items: usize,
}

/// Runs `work` for each item in several threads; the results have the order of the items.
pub(super) fn map<T: Send, R: Send>(items: Vec<T>, share: Share, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let threads = share.threads.min(items.len() / share.items);
    if threads <= 1 {
        return items.into_iter().map(work).collect();
    }
    let count = items.len();
    let waiting = Mutex::new(items.into_iter().enumerate());
    let run = || {
        let mut done = Vec::new();
        loop {
            let taken: Vec<_> = waiting.lock().by_ref().take(share.items).collect();
            if taken.is_empty() {
                return done;
            }
            done.extend(taken.into_iter().map(|(index, item)| (index, work(item))));
        }
    };
    let mut done = Vec::with_capacity(count);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        for worker in workers {
            done.extend(worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
    });
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items_whoever_made_them() {
        for count in [0, 1, 7, 8, 16, 1000] {
            for (threads, items) in [(1, 8), (2, 8), (16, 8), (16, 1)] {
                let doubled = map((0..count).collect(), Share { threads, items }, |item: usize| item * 2);
                assert!(
                    doubled.into_iter().eq((0..count).map(|item| item * 2)),
                    "{count} items, {threads} threads, {items} at a time"
                );
            }
        }
    }
}
