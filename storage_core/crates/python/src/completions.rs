//! What an event loop waits for: appends that become durable, records that arrive. The engine's threads tell it through a
//! pipe, and so never need the interpreter lock; however many are done at once, the loop wakes up once.

use std::collections::HashMap;
use std::future::Future;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use pyo3::prelude::*;
use walrus_log::{Arrival, CommitTicket};

use crate::error::{Raised, Result};

/// Waits of one event loop.
#[pyclass(frozen, module = "walrus_core")]
pub(crate) struct Completions {
    waiting: Mutex<Waiting>,
    bell: Arc<Bell>,
    reader: PipeReader,
}

#[derive(Default)]
struct Waiting {
    next_id: u64,
    by_id: HashMap<u64, Wait>,
}

enum Wait {
    Commit(CommitTicket),
    Arrival(Arrival),
}

/// Says that something is to be taken.
struct Bell {
    /// Waits to look at again.
    woken: Mutex<Vec<u64>>,
    /// A byte is in the pipe, or on its way.
    rings: AtomicBool,
    writer: PipeWriter,
}

/// Wakes one wait.
struct Ring {
    bell: Arc<Bell>,
    id: u64,
}

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        self.bell.woken.lock().unwrap_or_else(PoisonError::into_inner).push(self.id);
        if !self.bell.rings.swap(true, Ordering::AcqRel) {
            // The loop is gone if this fails, and nobody waits.
            let _ = (&self.bell.writer).write_all(&[1]);
        }
    }
}

impl Completions {
    /// Remembers what is not done yet, and gives its id; `None`: it is done.
    pub(crate) fn add_commit(&self, commit: CommitTicket) -> Result<Option<u64>> {
        self.add(Wait::Commit(commit))
    }

    pub(crate) fn add_arrival(&self, arrival: Arrival) -> Result<Option<u64>> {
        self.add(Wait::Arrival(arrival))
    }

    fn add(&self, mut wait: Wait) -> Result<Option<u64>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let id = waiting.next_id;
        match wait.poll(&self.waker(id)) {
            Poll::Ready(result) => result.map(|()| None),
            Poll::Pending => {
                waiting.next_id += 1;
                waiting.by_id.insert(id, wait);
                Ok(Some(id))
            }
        }
    }

    fn waker(&self, id: u64) -> Waker {
        Waker::from(Arc::new(Ring { bell: Arc::clone(&self.bell), id }))
    }
}

impl Wait {
    fn poll(&mut self, waker: &Waker) -> Poll<Result<()>> {
        let context = &mut Context::from_waker(waker);
        match self {
            Self::Commit(commit) => Pin::new(commit).poll(context).map_err(Raised::from),
            Self::Arrival(arrival) => Pin::new(arrival).poll(context).map_ok(drop).map_err(Raised::from),
        }
    }
}

#[pymethods]
impl Completions {
    #[new]
    fn new() -> Result<Self> {
        let (reader, writer) = std::io::pipe().map_err(PyErr::from)?;
        let bell = Bell { woken: Mutex::default(), rings: AtomicBool::new(false), writer };
        Ok(Self { waiting: Mutex::default(), bell: Arc::new(bell), reader })
    }

    fn fileno(&self) -> i32 {
        self.reader.as_raw_fd()
    }

    fn take<'py>(&self, py: Python<'py>) -> Result<Vec<(u64, Option<Bound<'py, PyAny>>)>> {
        if self.bell.rings.load(Ordering::Acquire) {
            // The byte is there, or about to be.
            (&self.reader).read_exact(&mut [0]).map_err(PyErr::from)?;
            self.bell.rings.store(false, Ordering::Release);
        }
        let woken = std::mem::take(&mut *self.bell.woken.lock().unwrap_or_else(PoisonError::into_inner));
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut done = Vec::with_capacity(woken.len());
        for id in woken {
            let Some(wait) = waiting.by_id.get_mut(&id) else { continue };
            if let Poll::Ready(result) = wait.poll(&self.waker(id)) {
                waiting.by_id.remove(&id);
                let error = result.err().map(|raised| PyErr::from(raised).into_value(py).into_any());
                done.push((id, error.map(|error| error.into_bound(py))));
            }
        }
        Ok(done)
    }
}
