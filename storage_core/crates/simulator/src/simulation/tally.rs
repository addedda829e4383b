//! The tally of what happened in lives of clusters.

/// The counts of one life, or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Lives.
    pub schedules: u64,
    /// Simulated microseconds.
    pub simulated_us: u64,
    /// Events that happened.
    pub events: u64,
    /// Batches that were acknowledged.
    pub acknowledged: u64,
    /// Segments that were sealed.
    pub sealed: u64,
    /// Attempts to recover.
    pub recoveries: u64,
    /// Faults of all kinds.
    pub faults: u64,
    /// Lives in which a loss was told, after two faults.
    pub losses_told: u64,
    /// Holes of open copies that were filled from other copies.
    pub filled: u64,
    /// Ends of segments that a leader, asked for them, could name.
    pub claims: u64,
    /// Ranges that had rotted on all copies, and were told as lost.
    pub lost: u64,
    /// Segments that compactions wrote.
    pub compacted: u64,
    /// Segments that were trimmed.
    pub trimmed: u64,
    /// Ways of readers from the beginning to the end of what was sealed.
    pub readings: u64,
    /// Offset commits that were acknowledged to members of groups, and to others.
    pub commits: u64,
    /// Times that a coordinator of groups took over.
    pub takeovers: u64,
    /// Trims by coordinators, of what they had recorded again.
    pub owner_trims: u64,
}

impl Tally {
    /// Adds a life.
    pub fn add(&mut self, other: Tally) {
        self.schedules += other.schedules;
        self.simulated_us += other.simulated_us;
        self.events += other.events;
        self.acknowledged += other.acknowledged;
        self.sealed += other.sealed;
        self.recoveries += other.recoveries;
        self.faults += other.faults;
        self.losses_told += other.losses_told;
        self.filled += other.filled;
        self.claims += other.claims;
        self.lost += other.lost;
        self.compacted += other.compacted;
        self.trimmed += other.trimmed;
        self.readings += other.readings;
        self.commits += other.commits;
        self.takeovers += other.takeovers;
        self.owner_trims += other.owner_trims;
    }
}
