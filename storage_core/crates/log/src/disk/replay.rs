//! A walk through the changes of a simulated disk, which builds the disk that a crash after any of them leaves.

use super::TailKind;
use super::crash::{Change, CrashChoice, Image};
use super::simulated::SimulatedDisk;

/// The changes of a simulated disk, replayed one by one.
pub struct Replay {
    tail_kind: TailKind,
    history: Vec<Change>,
    done: usize,
    image: Image,
}

impl Replay {
    /// Begins behind the files that were there from the beginning.
    pub(super) fn of(tail_kind: TailKind, history: Vec<Change>) -> Self {
        let mut replay = Self { tail_kind, history, done: 0, image: Image::default() };
        while let Some(Change::Given { .. }) = replay.history.get(replay.done) {
            replay.step();
        }
        replay
    }

    /// Number of changes that were replayed.
    pub fn changes(&self) -> usize {
        self.done
    }

    /// Replays one more change; false if there is none.
    pub fn step(&mut self) -> bool {
        let Some(change) = self.history.get(self.done) else { return false };
        self.image.apply(change);
        self.done += 1;
        true
    }

    /// Builds the disk that a crash leaves at this point.
    pub fn crash_image(&self, choice: CrashChoice) -> SimulatedDisk {
        SimulatedDisk::holding(self.tail_kind, self.image.crash(choice))
    }
}

impl SimulatedDisk {
    /// Builds the disk that a crash after the first `changes` changes leaves.
    pub fn crash_image(&self, changes: usize, choice: CrashChoice) -> Self {
        let mut replay = self.replay();
        while replay.changes() < changes && replay.step() {}
        replay.crash_image(choice)
    }

    /// Begins a walk through the changes that were made so far, for crash images after each of them.
    pub fn replay(&self) -> Replay {
        Replay::of(self.tail_kind(), self.history())
    }
}
