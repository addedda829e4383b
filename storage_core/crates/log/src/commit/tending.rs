//! The background thread: space ahead of writers, footers, freed slots, synced marks, the journal's compaction,
//! retention. Nothing here is needed for an answer; it sleeps while there is nothing to do.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::commit::engine::Engine;
use crate::error::Error;
use crate::log::block::Block;
use crate::sync::{Condvar, Mutex, now};
use crate::types::LogId;

/// How often logs are looked at for what has become old.
const AGE_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct Tending {
    queue: Mutex<Queue>,
    wake: Condvar,
    /// Signalled when the queue is empty and nothing is being done.
    idle: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Look whether the journal or freed slots need something.
    look: bool,
    /// A log needs its mark before the time of all.
    marks_soon: bool,
    marks_at: Option<Instant>,
    ages_at: Option<Instant>,
    working: bool,
    stop: bool,
}

enum Job {
    Extend(Arc<Block>, u64),
    Footer(Arc<Block>, Option<Vec<u8>>),
    Retain(LogId),
}

impl Tending {
    /// Asks for a look around.
    pub(crate) fn wake(&self) {
        let mut queue = self.queue.lock();
        if !std::mem::replace(&mut queue.look, true) {
            self.wake.notify_one();
        }
    }

    /// Asks for space ahead of a writer.
    pub(crate) fn extend(&self, block: &Arc<Block>, written: u64) {
        self.queue.lock().jobs.push_back(Job::Extend(Arc::clone(block), written));
        self.wake.notify_one();
    }

    /// Asks for a block's footer; it can take its time.
    pub(crate) fn write_footer(&self, block: Arc<Block>, producers: Option<Vec<u8>>) {
        self.queue.lock().jobs.push_back(Job::Footer(block, producers));
        self.wake.notify_one();
    }

    /// Asks for a look at what a log may forget.
    pub(crate) fn retain(&self, log: LogId) {
        self.queue.lock().jobs.push_back(Job::Retain(log));
        self.wake.notify_one();
    }

    /// Asks for a look at what has become old, in a while.
    pub(crate) fn retain_later(&self) {
        let mut queue = self.queue.lock();
        if queue.ages_at.is_none() {
            queue.ages_at = Some(now() + AGE_INTERVAL);
            self.wake.notify_one();
        }
    }

    /// Asks for synced marks when `interval` has gone by.
    pub(crate) fn mark_later(&self, interval: Duration) {
        let mut queue = self.queue.lock();
        if queue.marks_at.is_none() {
            queue.marks_at = Some(now() + interval);
            self.wake.notify_one();
        }
    }

    /// Asks for the synced marks of busy logs.
    pub(crate) fn mark_soon(&self) {
        if !std::mem::replace(&mut self.queue.lock().marks_soon, true) {
            self.wake.notify_one();
        }
    }

    /// Waits until everything asked for, but for marks, is done.
    pub(crate) fn settle(&self) {
        let mut queue = self.queue.lock();
        while !queue.stop && (queue.working || queue.look || !queue.jobs.is_empty()) {
            queue = self.idle.wait(queue);
        }
    }

    /// Ends the thread once the jobs are done.
    pub(crate) fn stop(&self) {
        self.queue.lock().stop = true;
        self.wake.notify_one();
    }

    /// The thread.
    pub(crate) fn run(&self, engine: &Engine) {
        let mut queue = self.queue.lock();
        loop {
            queue.working = true;
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                job.run(engine);
                queue = self.queue.lock();
            } else if std::mem::take(&mut queue.look) {
                drop(queue);
                look_around(engine);
                queue = self.queue.lock();
            } else if std::mem::take(&mut queue.marks_soon) {
                drop(queue);
                engine.write_busy_marks();
                queue = self.queue.lock();
            } else if queue.marks_at.is_some_and(|at| at <= now()) {
                queue.marks_at = None;
                drop(queue);
                engine.write_marks();
                queue = self.queue.lock();
            } else if queue.ages_at.is_some_and(|at| at <= now()) {
                queue.ages_at = None;
                drop(queue);
                engine.retain_aged();
                queue = self.queue.lock();
            } else {
                queue.working = false;
                self.idle.notify_all();
                let times = [queue.marks_at, queue.ages_at];
                match times.into_iter().flatten().min() {
                    _ if queue.stop => return,
                    Some(at) => (queue, _) = self.wake.wait_until(queue, at),
                    None => queue = self.wake.wait(queue),
                }
            }
        }
    }
}

impl Job {
    fn run(self, engine: &Engine) {
        match self {
            Self::Retain(id) => {
                if let Some(log) = engine.log(id) {
                    report("retention", log.retain());
                }
            }
            Self::Extend(block, written) => {
                if !block.freed.load(Ordering::Acquire) {
                    let prepared = block.space.prepare_ahead(written);
                    report("space ahead", prepared.map_err(|e| block.slots.file.error("grow", e)));
                }
                block.extending.store(false, Ordering::Release);
            }
            Self::Footer(block, producers) => {
                if !block.freed.load(Ordering::Acquire) {
                    let written = block.write_footer(producers);
                    report("footer", written.map_err(|e| block.slots.file.error("write", e)));
                }
            }
        }
    }
}

fn look_around(engine: &Engine) {
    report("reclaim", engine.reclaim());
    report("journal", engine.journal.tend());
}

/// What fails here is tried again, or done by the writer itself, who then has the error.
fn report(what: &str, result: Result<(), Error>) {
    match result {
        // A full disk is told to each writer that needs space.
        Ok(()) | Err(Error::NoSpace { .. } | Error::Poisoned { .. }) => {}
        Err(error) => tracing::warn!(what, %error, "background work failed"),
    }
}
