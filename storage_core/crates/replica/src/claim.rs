//! Claims about the end of an open segment, and about who may begin to lead it. Whoever has a record may show it; to claim
//! that there is no other takes more, for a process that was cut off, replaced or asleep does not know what it has missed.

use crate::seeded;

/// Why a node may not claim something now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The node has just started: the metadata that it knows do not list this process.
    NotListed,
    /// The node may have missed commands of the metadata store.
    NotHeard,
    /// This process does not lead the segment: only the one that orders the appends knows their end.
    NotLeader,
    /// The copy has promised a recoverer, has voted, or knows the decision.
    Ending,
    /// The metadata here do not list it, or list it as sealed or being sealed.
    NotOpen,
    /// The copy was trimmed: a tombstone is all that is left.
    Trimmed,
    /// The promises about the copy are forgotten with its votes: it was verified, or the log is not of this segment's leader.
    Forgotten,
    /// The journal cannot be read.
    Unreadable,
    /// Too few replicas confirm the leader: the others may have chosen another.
    TooFew {
        /// Replicas that confirm it, the own one included.
        confirmed: usize,
        /// The segment's w.
        needed: usize,
    },
}

impl Doubt {
    /// Whether the copy never takes appends of the segment's leader again, while the metadata list the segment as open.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Ending | Self::Forgotten)
    }
}

impl std::fmt::Display for Doubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotListed => f.write_str("the metadata that this node knows do not list its process yet"),
            Self::NotHeard => f.write_str("this node has not heard from the metadata store lately"),
            Self::NotLeader => f.write_str("this process does not lead it"),
            Self::Ending => f.write_str("its end is being decided"),
            Self::NotOpen => f.write_str("the metadata here do not list it as open"),
            Self::Trimmed => f.write_str("it was trimmed on this disk"),
            Self::Forgotten => f.write_str("this disk has its log and no promises about it"),
            Self::Unreadable => f.write_str("what this disk has promised about it cannot be read"),
            Self::TooFew { confirmed, needed } => {
                write!(f, "{confirmed} replicas confirm its leader, {needed} are needed")
            }
        }
    }
}

impl std::error::Error for Doubt {}

/// The copy of a segment on this disk, and what the metadata here say of it, at the version that a question names or later.
#[derive(Clone, Copy, Debug)]
pub struct OwnCopy {
    /// Whether the metadata list it as open: nobody is deciding its end.
    pub is_open: bool,
    /// Whether a tombstone of this disk covers it.
    pub is_trimmed: bool,
    /// Whether its log has batches, or is sealed.
    pub is_written: bool,
    /// Whether it takes appends; `None` if nothing was ever promised about it, or that was forgotten.
    pub takes_appends: Option<bool>,
}

/// The part that the own copy of an open segment plays for its leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Nobody has written to it: its leader may begin (R7).
    Fresh,
    /// It takes its leader's appends.
    Written,
}

impl OwnCopy {
    /// The part that the copy plays for its leader, if it counts for it: for claims about the segment's end, and for beginning
    /// to lead. An absent log alone proves nothing, for a trimmed copy has none either.
    ///
    /// # Errors
    /// The doubt for which the copy does not count.
    pub fn part(&self) -> Result<Part, Doubt> {
        if !self.is_open {
            return Err(Doubt::NotOpen);
        }
        if self.is_trimmed {
            return Err(Doubt::Trimmed);
        }
        match (self.takes_appends, self.is_written) {
            (Some(false), _) => Err(Doubt::Ending),
            (None, true) if !seeded!(ForgottenCopyStands) => Err(Doubt::Forgotten),
            (_, false) => Ok(Part::Fresh),
            (_, true) => Ok(Part::Written),
        }
    }
}

/// The support of an open segment's leader when somebody asks where the segment ends.
#[derive(Clone, Copy, Debug)]
pub struct Tail {
    /// The segment's n.
    pub replicas: usize,
    /// The segment's w.
    pub write_quorum: usize,
    /// Whether this very process leads it.
    pub is_leader: bool,
    /// The result of [`OwnCopy::part`].
    pub own: Result<Part, Doubt>,
    /// Other replicas that say the same of their copies. They were asked after the question came.
    pub confirmed: usize,
}

impl Tail {
    /// Checks that the high watermark here may be claimed to be the end of the log. Whoever opens the next segment needs the
    /// promises of f replicas not to take appends any more; w + f = n + 1, so nobody has them while w replicas take appends.
    ///
    /// # Errors
    /// The doubt for which it may not be claimed.
    pub fn may_claim_end(&self) -> Result<(), Doubt> {
        self.own?;
        if self.replicas == 1 {
            return Ok(()); // the only copy, whoever wrote it
        }
        if !self.is_leader {
            return Err(Doubt::NotLeader);
        }
        let (confirmed, needed) = (1 + self.confirmed, self.write_quorum);
        if confirmed >= needed { Ok(()) } else { Err(Doubt::TooFew { confirmed, needed }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LED: Tail =
        Tail { replicas: 3, write_quorum: 2, is_leader: true, own: Ok(Part::Written), confirmed: 1 };
    const COPY: OwnCopy =
        OwnCopy { is_open: true, is_trimmed: false, is_written: true, takes_appends: Some(true) };

    #[test]
    fn a_copy_counts_if_its_segment_is_listed_as_open_and_nothing_was_promised_against_its_leader() {
        assert_eq!(COPY.part(), Ok(Part::Written));
        let empty = OwnCopy { is_written: false, ..COPY };
        assert_eq!(empty.part(), Ok(Part::Fresh));
        assert_eq!(OwnCopy { takes_appends: None, ..empty }.part(), Ok(Part::Fresh), "never heard of");
        assert_eq!(OwnCopy { takes_appends: Some(false), ..COPY }.part(), Err(Doubt::Ending));
        assert_eq!(OwnCopy { takes_appends: Some(false), ..empty }.part(), Err(Doubt::Ending));
    }

    /// A copy that was verified, and whose votes were then forgotten, once counted as one that had promised nothing.
    #[test]
    fn a_copy_whose_promises_are_forgotten_counts_for_nobody() {
        assert_eq!(OwnCopy { takes_appends: None, ..COPY }.part(), Err(Doubt::Forgotten));
    }

    /// A trimmed copy has no log either.
    #[test]
    fn an_absent_log_alone_proves_nothing() {
        let absent = OwnCopy { is_written: false, takes_appends: None, ..COPY };
        assert_eq!(OwnCopy { is_trimmed: true, ..absent }.part(), Err(Doubt::Trimmed));
        assert_eq!(OwnCopy { is_open: false, ..absent }.part(), Err(Doubt::NotOpen));
    }

    #[test]
    fn a_leader_that_w_replicas_obey_may_say_where_its_segment_ends() {
        assert_eq!(LED.may_claim_end(), Ok(()));
        let alone = Tail { confirmed: 0, ..LED };
        assert_eq!(alone.may_claim_end(), Err(Doubt::TooFew { confirmed: 1, needed: 2 }));
        assert!(Tail { replicas: 5, write_quorum: 3, ..LED }.may_claim_end().is_err());
        assert_eq!(Tail { replicas: 5, write_quorum: 3, confirmed: 2, ..LED }.may_claim_end(), Ok(()));
        assert_eq!(Tail { write_quorum: 1, confirmed: 0, ..LED }.may_claim_end(), Ok(()));
    }

    #[test]
    fn a_copy_that_promised_to_take_no_more_and_a_node_that_does_not_lead_may_not() {
        assert_eq!(Tail { own: Err(Doubt::Ending), ..LED }.may_claim_end(), Err(Doubt::Ending));
        assert_eq!(Tail { is_leader: false, ..LED }.may_claim_end(), Err(Doubt::NotLeader));
    }

    #[test]
    fn the_only_copy_knows_its_end_also_after_a_restart_until_a_recovery_begins() {
        let only = Tail { replicas: 1, write_quorum: 1, is_leader: false, confirmed: 0, ..LED };
        assert_eq!(only.may_claim_end(), Ok(()));
        assert_eq!(Tail { own: Err(Doubt::Ending), ..only }.may_claim_end(), Err(Doubt::Ending));
    }
}
