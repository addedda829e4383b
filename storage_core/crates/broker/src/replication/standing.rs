//! What a node may claim. Whoever has a record may show it; to say that there is nothing more (the end of a log, a gap in
//! a producer's sequences, an unknown topic) takes more, for a node that was cut off, replaced or just started does not
//! know what it has missed. Pure: told who was heard, says whether that is enough.

/// Why a node may not claim something now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Doubt {
    /// It has just started: what it knows is from before.
    #[error("the metadata that this node knows do not list its process yet")]
    NotListed,
    /// It may have missed commands.
    #[error("this node has not heard from the metadata store lately")]
    NotHeard,
    /// Only the process that orders the appends knows their end.
    #[error("this process does not lead it")]
    NotLeader,
    /// A recovery has begun, or a vote, or the decision is there.
    #[error("its end is being decided")]
    Ending,
    /// The others may have chosen another leader.
    #[error("{confirmed} replicas confirm its leader, {needed} are needed")]
    TooFew {
        /// The own one included.
        confirmed: usize,
        /// w of the segment.
        needed: usize,
    },
}

/// What is known of an open segment's leader when somebody asks where the segment ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail {
    /// n.
    pub(crate) replicas: usize,
    /// w.
    pub(crate) write_quorum: usize,
    /// This very process leads it.
    pub(crate) is_leader: bool,
    /// The own copy has promised nobody to take no more.
    pub(crate) takes_appends: bool,
    /// Other replicas of which the same is known. They were asked after the question came.
    pub(crate) confirmed: usize,
}

impl Tail {
    /// Whether the high watermark here is the end of the log. Whoever opened the next segment had promises of f
    /// replicas not to take appends any more; w + f = n + 1, so while w replicas take them nobody has.
    pub(crate) fn may_claim_end(&self) -> Result<(), Doubt> {
        if !self.takes_appends {
            return Err(Doubt::Ending);
        }
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

/// Whether a node may say that a topic, a partition or a segment does not exist.
pub(crate) fn may_claim_unknown(is_listed: bool, holds_lease: bool) -> Result<(), Doubt> {
    match (is_listed, holds_lease) {
        (false, _) => Err(Doubt::NotListed),
        (true, false) => Err(Doubt::NotHeard),
        (true, true) => Ok(()),
    }
}

/// Whether appends to a segment can not succeed as seen from here: of its n replicas so many have not answered for long,
/// and w are needed. The only copy is waited for: nobody else could be asked instead.
pub(crate) fn is_cut_off(replicas: usize, write_quorum: usize, lost: usize) -> bool {
    replicas > 1 && replicas.saturating_sub(lost) < write_quorum
}

#[cfg(test)]
mod tests {
    use super::*;

    const LED: Tail =
        Tail { replicas: 3, write_quorum: 2, is_leader: true, takes_appends: true, confirmed: 1 };

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
        assert_eq!(Tail { takes_appends: false, ..LED }.may_claim_end(), Err(Doubt::Ending));
        assert_eq!(Tail { is_leader: false, ..LED }.may_claim_end(), Err(Doubt::NotLeader));
    }

    #[test]
    fn the_only_copy_knows_its_end_also_after_a_restart_until_a_recovery_begins() {
        let only = Tail { replicas: 1, write_quorum: 1, is_leader: false, confirmed: 0, ..LED };
        assert_eq!(only.may_claim_end(), Ok(()));
        assert_eq!(Tail { takes_appends: false, ..only }.may_claim_end(), Err(Doubt::Ending));
    }

    #[test]
    fn a_node_that_has_just_started_or_hears_nothing_new_calls_nothing_unknown() {
        assert_eq!(may_claim_unknown(false, true), Err(Doubt::NotListed));
        assert_eq!(may_claim_unknown(false, false), Err(Doubt::NotListed));
        assert_eq!(may_claim_unknown(true, false), Err(Doubt::NotHeard));
        assert_eq!(may_claim_unknown(true, true), Ok(()));
    }

    #[test]
    fn a_segment_is_cut_off_when_fewer_than_w_replicas_are_left() {
        assert!(!is_cut_off(3, 2, 1));
        assert!(is_cut_off(3, 2, 2));
        assert!(!is_cut_off(5, 3, 2));
        assert!(is_cut_off(5, 3, 3));
        assert!(!is_cut_off(1, 1, 1));
    }
}
