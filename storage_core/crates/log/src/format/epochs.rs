//! The leader epochs of a block's batches. On the disk the four bytes of a batch's epoch hold its mark instead; the
//! block's header has the epochs, in runs, and readers put them back.

use crate::types::Epoch;

/// Limit on the runs of a block: as many as fit into a header page beside the longest name.
pub(crate) const EPOCH_RUNS_MAX: usize = 200;

/// The epoch of the batches from an offset on, up to the next run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EpochRun {
    pub(crate) first_offset: u64,
    pub(crate) epoch: Epoch,
}

/// The epochs of all batches of a block: 1 to 200 runs, in order of offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Epochs(Vec<EpochRun>);

/// The epochs of the batches of a log that is a copy of several segments: any number of runs, in order of offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EpochRuns(Vec<EpochRun>);

impl EpochRuns {
    /// Makes epochs of runs that cover the offsets from `from` on; `None` if they do not ascend, or begin behind it.
    pub(crate) fn covering(runs: Vec<EpochRun>, from: u64) -> Option<Self> {
        let begins = runs.first().is_some_and(|first| first.first_offset <= from);
        (begins && ascend(&runs)).then_some(Self(runs))
    }

    /// Epoch of the batch that begins at this offset.
    #[inline]
    pub(crate) fn at(&self, offset: u64) -> Epoch {
        self.0[run_of(&self.0, offset)].epoch
    }

    /// The epochs of a block that begins at this offset: as many runs as its header holds. The block must end where the
    /// first one begins that it does not hold and that has another epoch than the last.
    pub(crate) fn from(&self, offset: u64) -> Epochs {
        let first = run_of(&self.0, offset);
        let mut runs = self.0[first..self.0.len().min(first + EPOCH_RUNS_MAX)].to_vec();
        runs[0].first_offset = offset;
        Epochs(runs)
    }
}

/// Index of the run that an offset lies in; the first one also holds for offsets in front of it.
#[inline]
fn run_of(runs: &[EpochRun], offset: u64) -> usize {
    runs.partition_point(|run| run.first_offset <= offset).saturating_sub(1)
}

fn ascend(runs: &[EpochRun]) -> bool {
    runs.windows(2).all(|pair| pair[0].first_offset < pair[1].first_offset)
}

impl Epochs {
    /// The epochs of batches that all have the same.
    pub(crate) fn one(first_offset: u64, epoch: Epoch) -> Self {
        Self(vec![EpochRun { first_offset, epoch }])
    }

    /// Makes epochs of the runs of a block that begins at `base_offset`; `None` if they cannot be its runs.
    pub(super) fn from_runs(runs: Vec<EpochRun>, base_offset: u64) -> Option<Self> {
        let begins = runs.first().is_some_and(|first| first.first_offset == base_offset);
        (begins && ascend(&runs) && runs.len() <= EPOCH_RUNS_MAX).then_some(Self(runs))
    }

    pub(crate) fn runs(&self) -> &[EpochRun] {
        &self.0
    }

    /// Epoch of the batch that begins at this offset of the block.
    #[inline]
    pub(crate) fn at(&self, offset: u64) -> Epoch {
        self.0[run_of(&self.0, offset)].epoch
    }

    /// The epochs of this block and the next together; `None` if a header has no room for so many runs.
    pub(crate) fn followed_by(&self, next: &Self) -> Option<Self> {
        let mut runs = self.0.clone();
        for run in &next.0 {
            if runs.last().is_some_and(|last| last.epoch != run.epoch) {
                runs.push(*run);
            }
        }
        (runs.len() <= EPOCH_RUNS_MAX).then_some(Self(runs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(of: &[(u64, u32)]) -> Vec<EpochRun> {
        of.iter().map(|&(first_offset, epoch)| EpochRun { first_offset, epoch: Epoch(epoch) }).collect()
    }

    #[test]
    fn an_offset_has_the_epoch_of_the_run_that_it_lies_in() {
        let epochs = Epochs::from_runs(runs(&[(10, 3), (20, 5), (21, 4)]), 10).unwrap();
        assert_eq!([10, 19, 20, 21, 900].map(|offset| epochs.at(offset).0), [3, 3, 5, 4, 4]);
    }

    #[test]
    fn runs_that_do_not_ascend_from_the_base_offset_are_refused() {
        for wrong in [&[][..], &[(11, 1)], &[(10, 1), (10, 2)], &[(10, 1), (12, 2), (11, 3)]] {
            assert_eq!(Epochs::from_runs(runs(wrong), 10), None, "{wrong:?}");
        }
        let many: Vec<_> = (0..=EPOCH_RUNS_MAX as u64).map(|run| (10 + run, run as u32)).collect();
        assert_eq!(Epochs::from_runs(runs(&many), 10), None);
    }

    #[test]
    fn a_block_begins_with_the_run_of_its_base_and_holds_as_many_as_fit() {
        let all = EpochRuns::covering(runs(&[(3, 1), (10, 7), (20, 5)]), 5).unwrap();
        assert_eq!([3, 9, 10, 19, 20, 900].map(|offset| all.at(offset).0), [1, 1, 7, 7, 5, 5]);
        assert_eq!(all.from(12), Epochs(runs(&[(12, 7), (20, 5)])));
        assert_eq!(all.from(10), Epochs(runs(&[(10, 7), (20, 5)])));
        let many: Vec<_> = (0..300).map(|run| (run * 2, run as u32)).collect();
        let all = EpochRuns::covering(runs(&many), 0).unwrap();
        let (first, last) = (all.from(1), all.from(599));
        assert_eq!(
            (first.runs().len(), first.at(398), first.at(400)),
            (EPOCH_RUNS_MAX, Epoch(199), Epoch(199))
        );
        assert_eq!((last.runs(), all.at(400)), (&runs(&[(599, 299)])[..], Epoch(200)));
        for wrong in [&[][..], &[(6, 1)], &[(1, 1), (1, 2)], &[(1, 1), (4, 2), (3, 3)]] {
            assert_eq!(EpochRuns::covering(runs(wrong), 5), None, "{wrong:?}");
        }
    }

    #[test]
    fn neighbours_join_until_a_header_is_full() {
        let first = Epochs::from_runs(runs(&[(0, 1), (5, 2)]), 0).unwrap();
        let next = Epochs::from_runs(runs(&[(9, 2), (12, 3)]), 9).unwrap();
        assert_eq!(first.followed_by(&next), Some(Epochs(runs(&[(0, 1), (5, 2), (12, 3)]))));
        let full: Vec<_> = (0..EPOCH_RUNS_MAX as u64).map(|run| (run, run as u32)).collect();
        let full = Epochs::from_runs(runs(&full), 0).unwrap();
        assert_eq!(full.followed_by(&Epochs::one(1000, Epoch(9999))), None);
        assert!(full.followed_by(&Epochs::one(1000, Epoch(EPOCH_RUNS_MAX as u32 - 1))).is_some());
    }
}
