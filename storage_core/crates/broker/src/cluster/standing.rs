//! Decides what a node may claim about what it does not list, and when a segment cannot go on. Pure: it is told who was heard and
//! says whether that is enough. What a node may say of a segment's end is decided in `walrus_replica`.

use walrus_replica::Doubt;

/// Whether a node may say that a topic, a partition or a segment does not exist.
pub(crate) fn may_claim_unknown(is_listed: bool, holds_lease: bool) -> Result<(), Doubt> {
    match (is_listed, holds_lease) {
        (false, _) => Err(Doubt::NotListed),
        (true, false) => Err(Doubt::NotHeard),
        (true, true) => Ok(()),
    }
}

/// Whether a leader can never again have an append acknowledged: `over` of its segment's replicas take no more of it, and fewer
/// than `write_quorum` are left.
pub(crate) fn is_led_in_vain(replicas: usize, write_quorum: usize, over: usize) -> bool {
    replicas.saturating_sub(over) < write_quorum
}

/// Whether appends to a segment cannot succeed as seen from here: `lost` of its replicas have not answered for long, and fewer
/// than `write_quorum` are left. The only copy is waited for: nobody else could be asked instead.
pub(crate) fn is_cut_off(replicas: usize, write_quorum: usize, lost: usize) -> bool {
    replicas > 1 && replicas.saturating_sub(lost) < write_quorum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_has_just_started_or_hears_nothing_new_calls_nothing_unknown() {
        assert_eq!(may_claim_unknown(false, true), Err(Doubt::NotListed));
        assert_eq!(may_claim_unknown(false, false), Err(Doubt::NotListed));
        assert_eq!(may_claim_unknown(true, false), Err(Doubt::NotHeard));
        assert_eq!(may_claim_unknown(true, true), Ok(()));
    }

    #[test]
    fn a_segment_is_led_in_vain_once_fewer_than_w_replicas_can_take_appends() {
        assert!(!is_led_in_vain(3, 2, 1));
        assert!(is_led_in_vain(3, 2, 2));
        assert!(is_led_in_vain(5, 3, 3));
        assert!(!is_led_in_vain(1, 1, 0));
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
