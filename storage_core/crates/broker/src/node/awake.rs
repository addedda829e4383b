//! Waits without falling asleep, for what is only a fraction of a millisecond away.
//!
//! A thread that sleeps lets its core sleep, and a virtual machine needs 50 to 100 us to wake one: as long as a durable write.
//! Whoever waits here looks again and again instead. Between two looks the worker's other tasks and its sockets have their
//! turn, and then other threads that want the core; what is burned is a core that would have slept.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::LazyLock;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Whether there is a second core: on one, or with the quota of one, looking takes the time of those that are waited for.
static HAS_A_CORE_TO_SPARE: LazyLock<bool> =
    LazyLock::new(|| std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1));

/// Waits for `what`, which is likely to come within `awake`; what takes longer is waited for asleep.
pub(crate) async fn wait<T>(what: impl Future<Output = T>, awake: Duration) -> T {
    let mut what = pin!(what);
    if *HAS_A_CORE_TO_SPARE {
        let began = Instant::now();
        while began.elapsed() < awake {
            if let Poll::Ready(value) = poll_fn(|context| Poll::Ready(what.as_mut().poll(context))).await {
                return value;
            }
            std::thread::yield_now();
            tokio::task::yield_now().await;
        }
    }
    what.await
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use parking_lot::Mutex;
    use tokio::sync::oneshot;

    use super::*;

    const AWAKE: Duration = Duration::from_micros(500);

    #[tokio::test]
    async fn other_tasks_of_the_worker_go_on_meanwhile() {
        let (sender, receiver) = oneshot::channel();
        tokio::spawn(async move {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            sender.send("done").unwrap();
        });
        assert_eq!(wait(receiver, AWAKE).await, Ok("done"));
    }

    #[tokio::test]
    async fn after_its_time_a_wait_looks_only_when_it_is_woken() {
        let looks = Mutex::new(Vec::new());
        let (sender, mut receiver) = oneshot::channel();
        std::thread::spawn(move || {
            std::thread::sleep(AWAKE * 20);
            sender.send(()).unwrap();
        });
        let arrives = poll_fn(|context| {
            looks.lock().push(Instant::now());
            Pin::new(&mut receiver).poll(context)
        });
        wait(arrives, AWAKE).await.unwrap();
        let looks = looks.into_inner();
        let late = looks.iter().filter(|at| **at - looks[0] > AWAKE).count();
        assert!(late <= 3, "one begun in time, one before it sleeps, one woken; not {late}");
    }
}
