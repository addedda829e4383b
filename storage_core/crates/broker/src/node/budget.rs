//! The budget of bytes that this node holds for others at a time: requests until they are answered, answers until they are
//! written. There is one for all listeners, in shares, so that no kind of traffic takes the memory that another one needs:
//! readers who do not read stop no append, and appends that wait stop no vote.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;

use crate::node::error::{Error, Result};
use crate::node::obstacle::Obstacle;

/// Limit on the length of a batch that a broker takes. Two of them fit a frame between brokers.
#[allow(clippy::cast_possible_truncation)] // 24 MiB
pub(crate) const BATCH_BYTES_MAX: usize = walrus_metadata::BATCH_BYTES_MAX as usize;

/// Unless it is configured, the budget is one in so many bytes of this machine's memory, or of what its control group may use.
const PART_OF_MEMORY: usize = 4;
/// The smallest budget: each share but the votes' takes a batch of the largest size, one after another.
pub(crate) const BYTES_MIN: usize = 32 << 20;

/// The kind of traffic for which bytes are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Pages for clients and for nodes that serve them.
    Reads,
    /// Batches of clients, here or forwarded.
    Appends,
    /// Batches between replicas.
    Replication,
    /// Pages with which copies are made, mended and compared, until another node has read them.
    Repairs,
    /// Votes, questions about segments, pings: small, and what everything else depends on.
    Votes,
}

impl Purpose {
    pub(crate) const ALL: [Self; 5] =
        [Self::Reads, Self::Appends, Self::Replication, Self::Repairs, Self::Votes];

    /// The share's part of the budget, in sixteenths.
    fn part(self) -> usize {
        match self {
            Self::Reads => 7,
            Self::Appends => 4,
            Self::Replication => 3,
            Self::Repairs => 1,
            Self::Votes => 1,
        }
    }

    /// The name in metrics and errors.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Appends => "appends",
            Self::Replication => "replication",
            Self::Repairs => "repairs",
            Self::Votes => "votes",
        }
    }
}

/// The bytes that this node may hold for others, in shares by kind of traffic.
pub(crate) struct Budget {
    shares: [Arc<Share>; 5],
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Self {
        let share = |purpose: Purpose| {
            let bytes_max = bytes / 16 * purpose.part();
            Arc::new(Share {
                purpose,
                bytes_max,
                held: AtomicUsize::new(0),
                waiting: AtomicUsize::new(0),
                freed: Notify::new(),
            })
        };
        Self { shares: Purpose::ALL.map(share) }
    }

    pub(crate) fn share(&self, purpose: Purpose) -> &Arc<Share> {
        &self.shares[purpose as usize]
    }
}

/// A quarter of the memory that this process may use: of its control group if that has a limit, else of the machine.
pub(crate) fn default_bytes() -> usize {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let group = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limits = group.iter().filter_map(|path| read(path).trim().parse::<usize>().ok());
    let machine = read("/proc/meminfo");
    let total = machine.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    let total = total.and_then(|kib| kib.trim().parse::<usize>().ok()).map(|kib| kib << 10);
    let memory = limits.chain(total).min().unwrap_or(4 << 30);
    (memory / PART_OF_MEMORY).max(BYTES_MIN)
}

/// The share of one purpose: what it may hold, and what it holds.
pub(crate) struct Share {
    purpose: Purpose,
    bytes_max: usize,
    held: AtomicUsize,
    /// How many wait for room. It is read after bytes were given back, and those are looked at after it was raised; both have one
    /// order for all threads, so that nobody falls asleep unseen.
    waiting: AtomicUsize,
    /// Rings when something was given back, and somebody waits.
    freed: Notify,
}

impl Share {
    /// Bytes that are held now.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Counts bytes that are in memory already, or are few: it may go beyond the share's limit, and then others wait.
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize) -> Held {
        let mut held = Held { share: self.clone(), bytes: 0 };
        held.set(bytes);
        held
    }

    /// Counts bytes that are to be read, if they fit. What is larger than the whole share fits while nothing is held.
    pub(crate) fn try_take(self: &Arc<Self>, bytes: usize) -> Option<Held> {
        let fits = |held: usize| (held == 0 || held + bytes <= self.bytes_max).then_some(held + bytes);
        self.held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).ok()?;
        Some(Held { share: self.clone(), bytes })
    }

    /// Counts bytes that are to be read, and waits until they fit. `Unavailable` after `patience`.
    pub(crate) async fn take(self: &Arc<Self>, bytes: usize, patience: Duration) -> Result<Held> {
        if let Some(held) = self.try_take(bytes) {
            return Ok(held);
        }
        let _waiting = WaitingMark::new(self);
        let taken = async {
            loop {
                let mut freed = std::pin::pin!(self.freed.notified());
                freed.as_mut().enable(); // before the look, so that nothing is missed
                if let Some(held) = self.try_take(bytes) {
                    return held;
                }
                freed.await;
            }
        };
        tokio::time::timeout(patience, taken).await.map_err(|_| self.exhausted())
    }

    /// Whether less than the limit is held.
    pub(crate) fn has_room(&self) -> bool {
        self.held() < self.bytes_max
    }

    /// Waits until less than the limit is held. `Unavailable` after `patience`.
    pub(crate) async fn room(self: &Arc<Self>, patience: Duration) -> Result<()> {
        if self.has_room() {
            return Ok(());
        }
        self.take(0, patience).await.map(drop)
    }

    pub(crate) fn exhausted(&self) -> Error {
        Obstacle::BudgetSpent { purpose: self.purpose.name(), bytes_max: self.bytes_max }.into()
    }
}

/// Somebody waits for room.
struct WaitingMark<'a> {
    share: &'a Share,
}

impl<'a> WaitingMark<'a> {
    fn new(share: &'a Share) -> Self {
        share.waiting.fetch_add(1, Ordering::SeqCst);
        Self { share }
    }
}

impl Drop for WaitingMark<'_> {
    fn drop(&mut self) {
        self.share.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Bytes of a share that count until this is dropped.
pub(crate) struct Held {
    share: Arc<Share>,
    bytes: usize,
}

impl Held {
    /// Corrects how many bytes count.
    pub(crate) fn set(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        if bytes > before {
            self.share.held.fetch_add(bytes - before, Ordering::Relaxed);
        } else if bytes < before {
            self.share.held.fetch_sub(before - bytes, Ordering::SeqCst);
            if self.share.waiting.load(Ordering::SeqCst) > 0 {
                self.share.freed.notify_waiters();
            }
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The same bytes, which count as long as anybody has a part of them.
pub(crate) fn counted(bytes: Bytes, held: Arc<Held>) -> Bytes {
    struct CountedBytes {
        bytes: Bytes,
        _held: Arc<Held>,
    }
    impl AsRef<[u8]> for CountedBytes {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }
    Bytes::from_owner(CountedBytes { bytes, _held: held })
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::poll;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn a_share(bytes: usize) -> Arc<Share> {
        Budget::new(4 * bytes).share(Purpose::Appends).clone()
    }

    #[tokio::test]
    async fn who_finds_no_room_waits_until_others_give_theirs_back() {
        let share = a_share(100 << 4);
        let first = share.take(1_000, PATIENCE).await.unwrap();
        let mut second = pin!(share.take(700, PATIENCE));
        assert!(poll!(&mut second).is_pending());
        assert!(share.try_take(601).is_none() && share.try_take(600).is_some());
        drop(first);
        assert_eq!(second.await.unwrap().bytes(), 700);
        assert_eq!(share.held(), 0);
    }

    #[tokio::test]
    async fn what_is_larger_than_the_share_goes_alone() {
        let share = a_share(100 << 4);
        let small = share.try_take(1).unwrap();
        assert!(share.try_take(5_000).is_none());
        drop(small);
        let large = share.try_take(5_000).unwrap();
        assert!(share.try_take(1).is_none());
        drop(large);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_room_longer_than_it_is_patient() {
        let share = a_share(100 << 4);
        let _all = share.hold(1_600);
        let refused = share.take(1, Duration::from_secs(3)).await;
        assert!(matches!(refused, Err(Error::Unavailable { .. })));
    }

    #[test]
    fn bytes_count_as_long_as_a_part_of_them_is_there() {
        let share = a_share(100 << 4);
        let bytes = Bytes::from_static(b"abcdef");
        let all = counted(bytes, Arc::new(share.hold(6)));
        let part = all.slice(2..3);
        drop(all);
        assert_eq!((share.held(), &part[..]), (6, &b"c"[..]));
        drop(part);
        assert_eq!(share.held(), 0);
    }

    #[test]
    fn one_share_leaves_the_others_alone() {
        let budget = Budget::new(BYTES_MIN);
        let _reads = budget.share(Purpose::Reads).hold(BYTES_MIN);
        for purpose in [Purpose::Appends, Purpose::Replication, Purpose::Repairs, Purpose::Votes] {
            assert!(budget.share(purpose).try_take(1 << 20).is_some());
        }
        assert!(default_bytes() >= BYTES_MIN);
    }
}
