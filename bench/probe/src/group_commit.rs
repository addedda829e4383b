//! The group-commit limit: threads that each wait for their own record, one of them writing for all.
//! The first that finds no write under way writes everything pending; who arrives meanwhile is in the next write.

use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use walrus_bench_sample::{Payload, Sample, closed_loop};

use crate::disk::{AlignedBuffer, DirectFile, PAGE_BYTES};

const THREADS: u64 = 8;
const RECORD_BYTES: usize = 1024;
/// More than all threads can have pending at once, with the page that is rewritten at the front.
const PENDING_BYTES_MAX: usize = 4 * PAGE_BYTES;

/// Positions are bytes since the start of the run; the file they are written to is shorter and recycled.
struct Tail {
    /// From the page of `durable` on; `end` is inside or at its end.
    pages: AlignedBuffer,
    end: u64,
    durable: u64,
    writing: bool,
    failed: bool,
}

struct Committer<'a> {
    file: &'a DirectFile,
    tail: Mutex<Tail>,
    committed: Condvar,
}

/// Eight threads; the sum of their rates.
pub(crate) fn records_of_8_threads(file: &DirectFile, duration: Duration) -> Result<Sample> {
    let committer = Committer {
        file,
        tail: Mutex::new(Tail {
            pages: AlignedBuffer::zeroed(PENDING_BYTES_MAX),
            end: 0,
            durable: 0,
            writing: false,
            failed: false,
        }),
        committed: Condvar::new(),
    };
    let threads: Vec<Result<_>> = thread::scope(|scope| {
        let started: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let mut payload = Payload::new(RECORD_BYTES);
                    closed_loop(duration, |number| committer.commit(payload.record(number)))
                })
            })
            .collect();
        started.into_iter().map(|thread| thread.join().expect("a thread panicked")).collect()
    });
    let mut records_per_second = 0.0;
    let mut p50_us: f64 = 0.0;
    for latencies in threads {
        let latencies = latencies?;
        records_per_second += latencies.per_second();
        p50_us = p50_us.max(latencies.quantile_us(500));
    }
    Ok(Sample::new(records_per_second, "records/s").with("p50_us", p50_us))
}

impl Committer<'_> {
    /// Durable on return.
    fn commit(&self, record: &[u8]) -> Result<()> {
        let mut tail = self.tail.lock().expect("no thread panics with the lock");
        let at = usize::try_from(tail.end - page_start(tail.durable))?;
        tail.pages.bytes_mut()[at..at + record.len()].copy_from_slice(record);
        tail.end += record.len() as u64;
        let mine = tail.end;

        while tail.durable < mine {
            ensure!(!tail.failed, "another thread's write failed");
            if tail.writing {
                tail = self.committed.wait(tail).expect("no thread panics with the lock");
                continue;
            }
            tail.writing = true;
            let from = page_start(tail.durable);
            let to = tail.end;
            let pages = usize::try_from((to - from).next_multiple_of(PAGE_BYTES as u64))?;
            let mut image = AlignedBuffer::zeroed(pages);
            image.bytes_mut().copy_from_slice(&tail.pages.bytes()[..pages]);
            drop(tail);

            let written = self.file.write_durably(image.bytes(), from);

            tail = self.tail.lock().expect("no thread panics with the lock");
            tail.writing = false;
            tail.failed = written.is_err();
            if written.is_ok() {
                tail.durable = to;
                let kept = usize::try_from(page_start(to) - from)?;
                tail.pages.bytes_mut().copy_within(kept.., 0);
            }
            self.committed.notify_all();
            written?;
        }
        Ok(())
    }
}

fn page_start(position: u64) -> u64 {
    position / PAGE_BYTES as u64 * PAGE_BYTES as u64
}
