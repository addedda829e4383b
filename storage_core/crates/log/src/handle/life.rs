//! The life of an open store: its threads, its lock on the directory, and the close that ends it.

use std::sync::Arc;

use super::member::Member;
use super::tending;
use crate::commit::committer::Committer;
use crate::commit::thread as commit_thread;
use crate::error::{Error, Result};
use crate::log::state::LogState;
use crate::resources::Resources;
use crate::resources::arrivals::Arrivals;
use crate::resources::journal::Record;
use crate::sync::Mutex;
use crate::sync::thread::{self, JoinHandle};

/// The running parts of a store. The store and the handles of its logs hold it; when the last of them is dropped, the
/// store closes.
pub(crate) struct Life {
    pub(crate) committer: Arc<Committer>,
    /// Tasks and threads that wait for a topic which does not exist yet.
    pub(crate) topics_made: Arrivals,
    /// Lets one creation or deletion of a log happen at a time.
    pub(crate) changing: Mutex<()>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Lock on the directory, held until the store is closed.
    lock: Mutex<Option<Box<dyn Send + Sync>>>,
}

impl Life {
    /// Starts the threads of a store whose logs are there.
    pub(crate) fn start(committer: Arc<Committer>, lock: Box<dyn Send + Sync>) -> Result<Self> {
        let mut threads = Vec::new();
        let mut runs = vec![
            ("walrus-tend", (|committer| tending::run(&committer)) as fn(Arc<Committer>)),
            ("walrus-commit", |committer| commit_thread::run(&committer)),
            ("walrus-ahead", |committer| committer.resources.blocks.run_ahead()),
            ("walrus-memory", |committer| committer.resources.pool.run_ahead()),
        ];
        if committer.resources.disk.maps() {
            runs.push(("walrus-pages", |committer| committer.resources.pages.run()));
        }
        for (name, run) in runs {
            let committer = Arc::clone(&committer);
            let thread = thread::Builder::new().name(name.to_owned()).spawn(move || run(committer));
            threads.push(thread.map_err(|e| Error::io("start a thread for", name, e))?);
        }
        committer.queues.chores.ask_upkeep();
        Ok(Self {
            committer,
            topics_made: Arrivals::default(),
            changing: Mutex::new(()),
            threads: Mutex::new(threads),
            lock: Mutex::new(Some(lock)),
        })
    }

    /// Closes the store: syncs everything but logs that never sync, notes that the store was closed in order, and lets
    /// go of the directory.
    pub(crate) fn close(&self) -> Result<()> {
        let _changing = self.changing.lock();
        let Committer { resources, queues, registry, marks, .. } = &*self.committer;
        if !resources.close() {
            return Ok(());
        }
        let logs = registry.all();
        for log in &logs {
            log.refuse_appends();
        }
        self.committer.commit_all();
        resources.journal.open_reserve();
        let takes_places = !resources.journal.is_read_only();
        let saved = logs.iter().filter(|_| takes_places).try_for_each(|log| self.save_cursors(log));
        marks.write_all(registry);
        queues.chores.stop();
        queues.commits.stop();
        resources.blocks.stop_ahead();
        resources.pool.stop_ahead();
        resources.pages.stop();
        for thread in self.threads.lock().drain(..) {
            // The last handle may be dropped by a waker, on one of these threads.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
        let poisoned = logs.iter().find_map(|log| log.check_poisoned().err());
        let closed = match poisoned {
            Some(error) => Err(error),
            None => saved.and_then(|()| close_journal(resources, &logs)),
        };
        logs.iter().for_each(|log| log.arrivals.announce());
        self.topics_made.announce();
        // Handles that outlive the close keep no file open.
        logs.iter().for_each(|log| log.let_go());
        resources.blocks.let_go();
        resources.journal.let_go();
        registry.clear();
        *self.lock.lock() = None;
        closed
    }

    /// Appends the places that the journal does not have yet; the journal's close makes them durable.
    fn save_cursors(&self, log: &Arc<LogState>) -> Result<()> {
        Member { log: Arc::clone(log), committer: Arc::clone(&self.committer) }.save_places()
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if self.committer.resources.check_origin().is_err() {
            // A forked child drops its copy: it must write nothing, and must not wait for locks or threads of its parent.
            std::mem::forget(Arc::clone(&self.committer));
            std::mem::forget(std::mem::take(self.threads.get_mut()));
            return;
        }
        if let Err(error) = self.close() {
            tracing::warn!(%error, "the store was not closed in order");
        }
    }
}

/// Says that the store was closed in order, and where what was never synced is.
fn close_journal(resources: &Resources, logs: &[Arc<LogState>]) -> Result<()> {
    let journal = &resources.journal;
    if journal.is_read_only() {
        return Ok(());
    }
    if let (true, Some(boot)) = (logs.iter().any(|log| !log.syncs()), resources.disk.boot()) {
        journal.append(&Record::LeftUnsynced { boot })?;
    }
    let syncs = resources.fsync.syncs() || logs.iter().any(|log| log.syncs());
    journal.close(syncs)
}
