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

impl Epochs {
    /// The epochs of batches that all have the same.
    pub(crate) fn one(first_offset: u64, epoch: Epoch) -> Self {
        Self(vec![EpochRun { first_offset, epoch }])
    }

    /// Makes epochs of the runs of a block that begins at `base_offset`; `None` if they cannot be its runs.
    pub(super) fn from_runs(runs: Vec<EpochRun>, base_offset: u64) -> Option<Self> {
        let begins = runs.first().is_some_and(|first| first.first_offset == base_offset);
        let ascends = runs.windows(2).all(|pair| pair[0].first_offset < pair[1].first_offset);
        (begins && ascends && runs.len() <= EPOCH_RUNS_MAX).then_some(Self(runs))
    }

    pub(crate) fn runs(&self) -> &[EpochRun] {
        &self.0
    }

    /// Epoch of the batch that begins at this offset of the block.
    #[inline]
    pub(crate) fn at(&self, offset: u64) -> Epoch {
        let after = self.0.partition_point(|run| run.first_offset <= offset);
        self.0[after.saturating_sub(1)].epoch
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
