//! The high watermark of an open segment, and who waits for it. A step of it wakes those whose offset it has reached, and
//! nobody else: with many appends under way most wait for later ones.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use crate::node::locks::Lock;
use tokio::sync::watch;

/// The high watermark of one open segment, with those who wait for it. It never moves back.
pub(crate) struct HighWatermark {
    value: watch::Sender<u64>,
    /// Those who wait, by the offset that they wait for and a number that tells those of one offset apart.
    waiting: Lock<BTreeMap<(u64, u64), Waker>>,
    next_number: AtomicU64,
}

impl HighWatermark {
    pub(crate) fn new(value: u64) -> Self {
        Self { value: watch::Sender::new(value), waiting: Lock::default(), next_number: AtomicU64::new(0) }
    }

    pub(crate) fn get(&self) -> u64 {
        *self.value.borrow()
    }

    /// The high watermark for readers, to whom every step is news.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.value.subscribe()
    }

    /// Moves it up to `value`. Steps that come in another order than they were taken leave it at the highest.
    pub(crate) fn raise(&self, value: u64) {
        // The value changes before the lock is taken: whoever looks under the lock and sees the old value is found here.
        let is_higher = self.value.send_if_modified(|known| {
            let is_higher = value > *known;
            *known = value.max(*known);
            is_higher
        });
        if !is_higher {
            return;
        }
        let reached = {
            let mut waiting = self.waiting.lock();
            let later = waiting.split_off(&(value.saturating_add(1), 0));
            std::mem::replace(&mut *waiting, later)
        };
        reached.into_values().for_each(Waker::wake);
    }

    /// Resolves when everything below `end` is on w disks.
    pub(crate) fn reaches(&self, end: u64) -> WatermarkWait<'_> {
        WatermarkWait { watermark: self, end, number: None }
    }
}

/// The future that [`HighWatermark::reaches`] returns.
#[must_use = "futures do nothing unless polled"]
pub(crate) struct WatermarkWait<'a> {
    watermark: &'a HighWatermark,
    end: u64,
    number: Option<u64>,
}

impl Future for WatermarkWait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let watermark = self.watermark;
        let mut waiting = watermark.waiting.lock();
        if watermark.get() >= self.end {
            return Poll::Ready(());
        }
        let number =
            *self.number.get_or_insert_with(|| watermark.next_number.fetch_add(1, Ordering::Relaxed));
        waiting.insert((self.end, number), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for WatermarkWait<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.watermark.waiting.lock().remove(&(self.end, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn poll(reaching: &mut WatermarkWait<'_>, wakes: &Arc<Wakes>) -> bool {
        Pin::new(reaching).poll(&mut Context::from_waker(&Waker::from(wakes.clone()))).is_ready()
    }

    #[test]
    fn a_step_wakes_those_that_it_reaches_each_once_and_no_others() {
        let watermark = HighWatermark::new(5);
        let ends = [5, 6, 6, 7, 9];
        let mut waiting: Vec<_> =
            ends.iter().map(|end| (watermark.reaches(*end), Arc::new(Wakes::default()))).collect();
        let ready: Vec<bool> = waiting.iter_mut().map(|(reaching, wakes)| poll(reaching, wakes)).collect();
        assert_eq!(ready, [true, false, false, false, false]);
        watermark.raise(7);
        watermark.raise(8);
        watermark.raise(6);
        assert_eq!(watermark.get(), 8, "it never moves back");
        let woken: Vec<usize> = waiting.iter().map(|(_, wakes)| wakes.0.load(Ordering::Relaxed)).collect();
        assert_eq!(woken, [0, 1, 1, 1, 0]);
        let ready: Vec<bool> = waiting.iter_mut().map(|(reaching, wakes)| poll(reaching, wakes)).collect();
        assert_eq!(ready, [true, true, true, true, false]);
    }

    #[test]
    fn who_looks_twice_waits_once_and_who_gives_up_is_forgotten() {
        let watermark = HighWatermark::new(0);
        let mut reaching = watermark.reaches(1);
        let wakes = Arc::new(Wakes::default());
        assert!(!poll(&mut reaching, &wakes));
        assert!(!poll(&mut reaching, &wakes));
        assert_eq!(watermark.waiting.lock().len(), 1);
        drop(reaching);
        assert!(watermark.waiting.lock().is_empty());
    }
}
