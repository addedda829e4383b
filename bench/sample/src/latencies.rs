//! Timings of single calls, and the closed loop that takes them.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::Result;

/// The part of a run that only warms up: its calls happen, and are not counted.
const WARM_UP_SHARE: f64 = 0.1;

/// How long each counted call took, and how long they took together.
#[derive(Debug, Default)]
pub struct Latencies {
    nanos: Vec<u64>, // sorted
    elapsed: Duration,
}

impl Latencies {
    /// Takes the timings of calls, in nanoseconds, made within `elapsed`.
    #[must_use]
    pub fn new(mut nanos: Vec<u64>, elapsed: Duration) -> Self {
        nanos.sort_unstable();
        Self { nanos, elapsed }
    }

    /// The calls of callers that ran side by side, as long as the longest of them.
    #[must_use]
    pub fn of_all(callers: Vec<Self>) -> Self {
        let elapsed = callers.iter().map(|caller| caller.elapsed).max().unwrap_or_default();
        Self::new(callers.into_iter().flat_map(|caller| caller.nanos).collect(), elapsed)
    }

    /// The number of counted calls.
    #[must_use]
    pub fn count(&self) -> usize {
        self.nanos.len()
    }

    /// Counted calls per second of the run.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^52")]
    pub fn per_second(&self) -> f64 {
        self.count() as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// The nearest-rank quantile of `per_mille` in 1,000, in microseconds; 0 when nothing was counted.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a call are far below 2^52")]
    pub fn quantile_us(&self, per_mille: usize) -> f64 {
        let rank = (self.count() * per_mille).div_ceil(1000);
        let nanos = self.nanos.get(rank.saturating_sub(1)).copied().unwrap_or(0);
        nanos as f64 / 1e3
    }
}

/// What a burst took.
#[derive(Debug)]
pub struct Burst {
    calls: u64,
    elapsed: Duration,
    /// Times of the calls that were timed alone.
    pub latencies: Latencies,
}

impl Burst {
    /// Mean over all counted calls.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts and nanoseconds of a run are far below 2^52")]
    pub fn nanos_per_call(&self) -> f64 {
        self.elapsed.as_nanos() as f64 / self.calls.max(1) as f64
    }
}

/// Times one call in so many of a burst: reading the clock twice costs a tenth of the cheapest calls.
const BURST_TIMED_EVERY: u64 = 16;

/// One caller that makes its next call when the last one returned, for `duration`. Calls of the warm-up at the start
/// are made and not counted. `call` is given its number, from 0, warm-up included.
///
/// # Errors
/// The first error of `call` ends the loop.
pub fn closed_loop(duration: Duration, mut call: impl FnMut(u64) -> Result<()>) -> Result<Latencies> {
    let mut number = 0;
    let warm_up_end = Instant::now() + duration.mul_f64(WARM_UP_SHARE);
    while Instant::now() < warm_up_end {
        call(number)?;
        number += 1;
    }

    let mut nanos = Vec::new();
    let start = Instant::now();
    let mut before = start;
    while before - start < duration {
        call(number)?;
        number += 1;
        let after = Instant::now();
        nanos.push(u64::try_from((after - before).as_nanos()).unwrap_or(u64::MAX));
        before = after;
    }
    Ok(Latencies::new(nanos, before - start))
}

/// One caller that makes its calls as fast as it can. For calls so cheap that timing each would show: the rate is of all
/// calls, the quantiles are of one call in 16. `call` is given its number.
///
/// # Errors
/// The first error of `call` ends the burst.
pub fn burst(numbers: Range<u64>, mut call: impl FnMut(u64) -> Result<()>) -> Result<Burst> {
    let calls = numbers.end.saturating_sub(numbers.start);
    let mut nanos = Vec::new();
    let start = Instant::now();
    for number in numbers {
        if number % BURST_TIMED_EVERY == 0 {
            let before = Instant::now();
            call(number)?;
            nanos.push(u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX));
        } else {
            call(number)?;
        }
    }
    let elapsed = start.elapsed();
    Ok(Burst { calls, elapsed, latencies: Latencies::new(nanos, elapsed) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_nearest_rank() {
        let latencies =
            Latencies::new((1..=1000).rev().map(|us| us * 1000).collect(), Duration::from_secs(2));
        assert_eq!(latencies.quantile_us(500), 500.0);
        assert_eq!(latencies.quantile_us(999), 999.0);
        assert_eq!(latencies.per_second(), 500.0);
        assert_eq!(Latencies::default().quantile_us(500), 0.0);
    }

    #[test]
    fn callers_side_by_side_are_counted_together() {
        let caller = |nanos, seconds| Latencies::new(vec![nanos; 10], Duration::from_secs(seconds));
        let both = Latencies::of_all(vec![caller(2_000, 2), caller(1_000, 1)]);
        assert_eq!(both.per_second(), 10.0);
        assert_eq!((both.quantile_us(500), both.quantile_us(510)), (1.0, 2.0));
    }

    #[test]
    fn the_loop_numbers_every_call_and_counts_those_after_the_warm_up() {
        let mut numbers = Vec::new();
        let latencies = closed_loop(Duration::from_millis(20), |number| {
            numbers.push(number);
            std::thread::sleep(Duration::from_micros(100));
            Ok(())
        })
        .expect("no call fails");
        assert!(numbers.iter().copied().eq(0..numbers.len() as u64));
        assert!(latencies.count() < numbers.len());
    }
}
