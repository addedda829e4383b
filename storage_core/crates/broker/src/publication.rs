//! The publication of new metadata to the parts of the data plane; the one place that knows the order.

use std::sync::Arc;

use walrus_metadata::Metadata;

use crate::cluster::Cluster;
use crate::cluster::routing::{ChangedTopic, Changes, Routing};
use crate::node::locks::{Lock, PUBLICATION};
use crate::partition::Partitions;

/// Hands out published metadata, one snapshot at a time.
pub(crate) struct Publication {
    /// Held while something is handed out: leases of older metadata must not replace those of newer.
    turn: Lock<(), PUBLICATION>,
    partitions: Arc<Partitions>,
}

/// The parts that follow the metadata, each told in its turn by [`hand_out`].
trait Followers {
    /// Has connections go to the nodes that are listed; a new process of a node is not silent because the one before it was.
    fn peers(&self, metadata: &Metadata);
    /// Notes which nodes have renewed their leases.
    fn presence(&self, metadata: &Metadata);
    /// Replaces the leases; on return no write under a lost one is under way.
    fn leases(&self, routing: &Routing);
    /// Tells leaders whose segments are not theirs any more how those ended.
    fn leaders(&self, routing: &Routing);
    /// Makes sure that each partition has a sequencer.
    fn sequencers(&self, changes: &Changes);
    /// Has requests go by the new table from here on.
    fn routing(&self, routing: Routing);
    /// Gives what waits for earlier leaders to the next ones.
    fn targets(&self, changed: &[ChangedTopic]);
    /// Wakes whoever waits for news.
    fn version(&self, version: u64);
}

/// Tells everybody, in the order that is safe. Leases end first of all that concerns writes: a process that has lost a segment
/// must not write to it while others read where it ended. Leaders learn how their segments ended before requests are routed past
/// them, so that an append that waits there is carried in front of those that come later. A sequencer is there before somebody
/// is routed to it. The version comes last, so that whoever it wakes sees all the rest.
fn hand_out(followers: &impl Followers, metadata: &Metadata, routing: Routing, changes: &Changes) {
    followers.presence(metadata);
    followers.peers(metadata);
    followers.leases(&routing);
    followers.leaders(&routing);
    followers.sequencers(changes);
    followers.routing(routing);
    followers.targets(&changes.changed);
    followers.version(metadata.version);
}

impl Publication {
    pub(crate) fn new(partitions: Arc<Partitions>) -> Self {
        Self { turn: Lock::default(), partitions }
    }

    /// Takes a snapshot of the metadata. On return leases and routes follow it. An older one than before is ignored.
    pub(crate) fn publish(&self, metadata: &Arc<Metadata>) {
        let _turn = self.turn.lock();
        let cluster = self.cluster();
        let old = Arc::clone(&cluster.routing());
        if metadata.version < old.metadata.version {
            tracing::warn!(
                version = metadata.version,
                published = old.metadata.version,
                "older metadata is not published"
            );
            return;
        }
        let (routing, changes) = old.next(metadata.clone(), cluster.config());
        hand_out(self, metadata, routing, &changes);
    }

    /// Brings the leases in line with the published metadata, should a publication have been missed.
    pub(crate) fn update_leases(&self) {
        let _turn = self.turn.lock();
        self.leases(&self.cluster().routing());
    }

    fn cluster(&self) -> &Cluster {
        self.partitions.cluster()
    }
}

impl Followers for Publication {
    fn peers(&self, metadata: &Metadata) {
        for restarted in self.cluster().peers().update(metadata) {
            self.cluster().liveness().restarted(restarted);
        }
    }

    fn presence(&self, metadata: &Metadata) {
        self.cluster().observe_leases(metadata);
    }

    fn leases(&self, routing: &Routing) {
        self.partitions.copies().bucket().update_leases(&routing.leases);
    }

    fn leaders(&self, routing: &Routing) {
        self.partitions.leaders().end_leaders(routing);
    }

    fn sequencers(&self, changes: &Changes) {
        if !changes.is_empty() {
            self.partitions.follow(changes);
        }
    }

    fn routing(&self, routing: Routing) {
        self.cluster().set_routing(routing);
    }

    fn targets(&self, changed: &[ChangedTopic]) {
        self.partitions.metadata_changed(changed);
    }

    fn version(&self, version: u64) {
        self.cluster().tell_version(version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Recorder(Lock<Vec<&'static str>>);

    impl Recorder {
        fn note(&self, what: &'static str) {
            self.0.lock().push(what);
        }
    }

    impl Followers for Recorder {
        fn peers(&self, _: &Metadata) {
            self.note("peers");
        }
        fn presence(&self, _: &Metadata) {
            self.note("presence");
        }
        fn leases(&self, _: &Routing) {
            self.note("leases");
        }
        fn leaders(&self, _: &Routing) {
            self.note("leaders");
        }
        fn sequencers(&self, _: &Changes) {
            self.note("sequencers");
        }
        fn routing(&self, _: Routing) {
            self.note("routing");
        }
        fn targets(&self, _: &[ChangedTopic]) {
            self.note("targets");
        }
        fn version(&self, _: u64) {
            self.note("version");
        }
    }

    /// Each of these pairs is a safety rule; see [`hand_out`].
    #[test]
    fn writes_under_a_lost_lease_end_before_anybody_is_routed_past_them_and_news_come_last() {
        let recorder = Recorder::default();
        hand_out(&recorder, &Metadata::default(), Routing::empty(), &Changes::default());
        let told = recorder.0.lock().clone();
        let at = |what| told.iter().position(|told| *told == what).unwrap();
        assert_eq!(told.len(), 8, "each is told once: {told:?}");
        for (first, then) in [
            ("leases", "leaders"),
            ("leaders", "routing"),
            ("sequencers", "routing"),
            ("routing", "targets"),
            ("presence", "routing"),
            ("peers", "routing"),
            ("targets", "version"),
        ] {
            assert!(at(first) < at(then), "{first} before {then}: {told:?}");
        }
    }
}
