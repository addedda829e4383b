//! The thread on which passes are made, one after the other.

use std::sync::{Arc, mpsc};

use tokio::sync::oneshot;

use super::pass::Pass;
use super::summary::PassSummary;
use crate::copies::Copies;
use crate::node::error::{Error, Result};

/// How much a compaction gives way to the other threads of the machine, in steps of `nice`.
const NICENESS: i32 = 10;

/// A pass that is to be made, and who waits for it.
type Job = (Pass, oneshot::Sender<Result<PassSummary>>);

/// One thread for all passes: what the allocator keeps for a thread that has ended would be kept once more for the next one. It is
/// started with the first pass, and ends with this handle.
#[derive(Default)]
pub(super) struct Worker {
    jobs: Option<mpsc::Sender<Job>>,
}

impl Worker {
    /// Makes a pass, on a new thread where the last one has ended by a panic.
    pub(super) async fn run(&mut self, copies: &Arc<Copies>, pass: Pass) -> Result<PassSummary> {
        let jobs = match self.jobs.take() {
            Some(jobs) => jobs,
            None => start(copies)?,
        };
        let (sender, ended) = oneshot::channel();
        jobs.send((pass, sender)).map_err(|problem| no_thread(&problem))?;
        let made = ended.await.map_err(|problem| no_thread(&problem))?;
        self.jobs = Some(jobs);
        made
    }
}

/// Starts the thread, which gives way to all that clients wait for.
fn start(copies: &Arc<Copies>) -> Result<mpsc::Sender<Job>> {
    let (jobs, waiting) = mpsc::channel::<Job>();
    let copies = copies.clone();
    let work = move || {
        give_way();
        for (pass, sender) in waiting {
            drop(sender.send(pass.run(&copies))); // whoever waits for it may be gone
        }
    };
    let thread = std::thread::Builder::new().name("walrus-compact".to_owned()).spawn(work);
    thread.map(|_| jobs).map_err(|problem| no_thread(&problem))
}

fn no_thread(problem: &dyn std::fmt::Display) -> Error {
    Error::Internal { message: format!("the thread of compactions: {problem}") }
}

/// Gives this thread a lower priority than the others have. On Linux it is the thread's own.
fn give_way() {
    if let Err(problem) = rustix::process::nice(NICENESS) {
        tracing::debug!(%problem, "a compaction runs with the priority of everything else");
    }
}
