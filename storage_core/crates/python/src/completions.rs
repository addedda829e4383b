//! The waits of an event loop: appends that become durable, records that arrive. The engine's threads tell the loop through
//! a pipe, and so never need the interpreter lock; a commit wakes the loop once, however many appends it makes durable.

use std::collections::HashMap;
use std::future::Future;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use pyo3::prelude::*;
use walrus_log::{CommitTicket, Error, Origin, TopicArrival};

use crate::error::{Raised, Result};

/// The waits of an event loop, used by `walrus_core.aio.AsyncWalrus`. Threads of the engine never take the GIL.
#[pyclass(frozen, module = "walrus_core")]
pub(crate) struct Completions {
    /// The process that made it. A forked child shares the pipe, and its parent would miss what the child took from it.
    origin: Origin,
    waiting: Mutex<Waiting>,
    bell: Arc<Bell>,
    /// The waker of all waits for commits, which rings the bell.
    on_commit: Waker,
    reader: PipeReader,
}

#[derive(Default)]
struct Waiting {
    next_id: u64,
    /// Waits for commits, by id, in the order of their appends.
    commits: Vec<(u64, CommitTicket)>,
    arrivals: HashMap<u64, TopicArrival>,
}

impl Waiting {
    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

/// The bell that tells the event loop that something is to be taken.
struct Bell {
    /// Whether there was a commit since the last look.
    committed: AtomicBool,
    /// Ids of the arrivals to look at again.
    arrived: Mutex<Vec<u64>>,
    /// Whether a byte is in the pipe, or on its way.
    rings: AtomicBool,
    writer: PipeWriter,
}

impl Bell {
    fn ring(&self) {
        if !self.rings.swap(true, Ordering::AcqRel) {
            // The loop is gone if this fails, and nobody waits.
            let _ = (&self.writer).write_all(&[1]);
        }
    }
}

/// The waker of all waits for commits: because it is one for all of them, it is woken once for each commit.
struct CommitWaker(Arc<Bell>);

impl Wake for CommitWaker {
    fn wake(self: Arc<Self>) {
        self.0.committed.store(true, Ordering::Release);
        self.0.ring();
    }
}

/// Wakes the wait for one arrival.
struct Arrived {
    bell: Arc<Bell>,
    id: u64,
}

impl Wake for Arrived {
    fn wake(self: Arc<Self>) {
        self.bell.arrived.lock().unwrap_or_else(PoisonError::into_inner).push(self.id);
        self.bell.ring();
    }
}

impl Completions {
    /// Remembers an append that is not done yet, and gives its id; `None` if it is done.
    pub(crate) fn add_commit(&self, mut commit: CommitTicket) -> Result<Option<u64>> {
        self.check_origin()?;
        let mut waiting = self.waiting();
        match Pin::new(&mut commit).poll(&mut Context::from_waker(&self.on_commit)) {
            Poll::Ready(result) => result.map(|()| None).map_err(Raised::from),
            Poll::Pending => {
                let id = waiting.id();
                waiting.commits.push((id, commit));
                Ok(Some(id))
            }
        }
    }

    /// Remembers an arrival that is still waited for, as [`Completions::add_commit`] does an append.
    pub(crate) fn add_arrival(&self, mut arrival: TopicArrival) -> Result<Option<u64>> {
        self.check_origin()?;
        let mut waiting = self.waiting();
        let id = waiting.id();
        match self.look(&mut arrival, id) {
            Poll::Ready(result) => result.map(|()| None),
            Poll::Pending => {
                waiting.arrivals.insert(id, arrival);
                Ok(Some(id))
            }
        }
    }

    fn look(&self, arrival: &mut TopicArrival, id: u64) -> Poll<Result<()>> {
        let waker = Waker::from(Arc::new(Arrived { bell: Arc::clone(&self.bell), id }));
        let looked = Pin::new(arrival).poll(&mut Context::from_waker(&waker));
        looked.map_ok(drop).map_err(Raised::from)
    }

    fn check_origin(&self) -> Result<()> {
        if self.origin.is_here() { Ok(()) } else { Err(Error::Forked.into()) }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Completions {
    #[new]
    fn new() -> Result<Self> {
        let (reader, writer) = std::io::pipe().map_err(PyErr::from)?;
        let bell = Arc::new(Bell {
            committed: AtomicBool::new(false),
            arrived: Mutex::default(),
            rings: AtomicBool::new(false),
            writer,
        });
        let on_commit = Waker::from(Arc::new(CommitWaker(Arc::clone(&bell))));
        let origin = Origin::here();
        Ok(Self { origin, waiting: Mutex::default(), bell, on_commit, reader })
    }

    /// Whether this process is a forked child of the one that made it: every call is refused then.
    #[getter]
    fn is_forked(&self) -> bool {
        !self.origin.is_here()
    }

    /// File descriptor that can be read from when there is something to take.
    fn fileno(&self) -> Result<i32> {
        self.check_origin()?;
        Ok(self.reader.as_raw_fd())
    }

    /// Ends a wait: `take` does not tell of it, and it keeps nothing alive.
    fn forget(&self, py: Python<'_>, id: u64) -> Result<()> {
        self.check_origin()?;
        let mut waiting = self.waiting();
        let arrival = waiting.arrivals.remove(&id);
        let commit = waiting.commits.extract_if(.., |(of, _)| *of == id).next();
        drop(waiting);
        // The wait may be the last that keeps a store open, which closes then.
        py.detach(|| drop((arrival, commit)));
        Ok(())
    }

    fn __repr__(&self) -> String {
        if !self.origin.is_here() {
            return "<Completions of another process>".to_owned();
        }
        let waiting = self.waiting();
        format!("<Completions: {} waits>", waiting.commits.len() + waiting.arrivals.len())
    }

    /// Gives the ids that are done since the last call, and why they failed.
    fn take<'py>(&self, py: Python<'py>) -> Result<Vec<(u64, Option<Bound<'py, PyAny>>)>> {
        self.check_origin()?;
        if self.bell.rings.load(Ordering::Acquire) {
            // The bell has rung, so the byte is in the pipe or about to be.
            (&self.reader).read_exact(&mut [0]).map_err(PyErr::from)?;
            self.bell.rings.store(false, Ordering::Release);
        }
        let mut results = Vec::new();
        let mut waiting = self.waiting();
        if self.bell.committed.swap(false, Ordering::AcqRel) {
            let over = waiting.commits.extract_if(.., |(_, commit)| commit.is_over());
            results.extend(over.map(|(id, commit)| (id, commit.wait().map_err(Raised::from))));
        }
        let arrived = std::mem::take(&mut *self.bell.arrived.lock().unwrap_or_else(PoisonError::into_inner));
        for id in arrived {
            let Some(mut arrival) = waiting.arrivals.remove(&id) else { continue };
            match self.look(&mut arrival, id) {
                Poll::Ready(result) => results.push((id, result)),
                Poll::Pending => drop(waiting.arrivals.insert(id, arrival)),
            }
        }
        drop(waiting);
        let raised = |result: Result<()>| {
            let error = result.err().map(|raised| PyErr::from(raised).into_value(py).into_any());
            error.map(|error| error.into_bound(py))
        };
        Ok(results.into_iter().map(|(id, result)| (id, raised(result))).collect())
    }
}
