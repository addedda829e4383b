//! The past of a simulated disk, walked change by change: the disk that a crash leaves after any of them.

use super::crash::{Change, CrashChoice, Image};
use super::simulated::SimulatedDisk;
use super::{Disk, TailKind};

/// A disk's past, replayed.
pub struct Replay {
    tail_kind: TailKind,
    history: Vec<Change>,
    done: usize,
    image: Image,
}

impl Replay {
    /// Begins behind what was there before everything.
    pub(super) fn of(tail_kind: TailKind, history: Vec<Change>) -> Self {
        let mut replay = Self { tail_kind, history, done: 0, image: Image::default() };
        while let Some(Change::Given { .. }) = replay.history.get(replay.done) {
            replay.step();
        }
        replay
    }

    /// How many changes were replayed.
    pub fn changes(&self) -> usize {
        self.done
    }

    /// Replays one more change; false: there is none.
    pub fn step(&mut self) -> bool {
        let Some(change) = self.history.get(self.done) else { return false };
        self.image.apply(change);
        self.done += 1;
        true
    }

    /// The disk that a crash now leaves.
    pub fn crash_image(&self, choice: CrashChoice) -> SimulatedDisk {
        SimulatedDisk::holding(self.tail_kind, self.image.crash(choice))
    }
}

impl SimulatedDisk {
    /// The disk that a crash after the first `changes` changes leaves.
    pub fn crash_image(&self, changes: usize, choice: CrashChoice) -> Self {
        let mut replay = self.replay();
        while replay.changes() < changes && replay.step() {}
        replay.crash_image(choice)
    }

    /// Walks through the changes that were made so far, from the first on: for images at all of them.
    pub fn replay(&self) -> Replay {
        Replay::of(self.tail_kind(), self.history())
    }
}
