//! The rooms of the broker and of the engine, in their order, and the files that do not lie in the folder of their room. This
//! file is the data of the rules in `rules.rs`.

use std::collections::BTreeMap;

/// The rooms of one crate.
#[derive(Debug)]
pub struct Layout {
    /// Name of the crate's folder in `storage_core/crates/`.
    pub name: &'static str,
    /// From the top to the bottom: a room knows those of later lines, none of its own line or of an earlier one. A file in
    /// a folder named like a room is in that room.
    pub order: &'static [&'static [&'static str]],
    /// Files that are in another room than their folder's.
    pub placed: &'static [(&'static str, &'static str)],
    /// The one object that listeners call.
    pub facade: Option<Facade>,
}

/// Types that hold every part of a crate, so that whoever has one can reach everything.
#[derive(Debug)]
pub struct Facade {
    /// The file that defines them.
    pub file: &'static str,
    /// Their names.
    pub types: &'static [&'static str],
    /// Rooms whose files may name them.
    pub may_name: &'static [&'static str],
}

impl Layout {
    /// The line of each room in the order; the top has the lowest.
    pub fn ranks(&self) -> BTreeMap<&'static str, usize> {
        let lines = self.order.iter().enumerate();
        lines.flat_map(|(rank, rooms)| rooms.iter().map(move |room| (*room, rank))).collect()
    }
}

/// The crates that have rooms.
pub const LAYOUTS: &[&Layout] = &[&BROKER, &LOG, &METADATA];

/// The data plane.
pub const BROKER: Layout = Layout {
    name: "broker",
    order: &[
        &["root"],   // what other crates see, and the doors of the fuzz targets
        &["wiring"], // starts everything, hands out new metadata
        &["text", "grpc", "kafka", "peer_server"],
        &["edge"],
        &["facade"],
        &["cursors", "groups"],
        &["owners"],
        &["topics"],
        &["reading"],
        &["upkeep"],
        &["partition"],
        &["ending"],
        &["copies"],
        &["cluster"],
        &["peer", "bucket"],
        &["node"],
    ],
    placed: &[
        ("lib.rs", "root"),
        ("fuzzing.rs", "root"),
        ("client_listener.rs", "wiring"),
        ("data_plane.rs", "wiring"),
        ("publication.rs", "wiring"),
        ("broker.rs", "facade"),
        ("bucket.rs", "bucket"),
    ],
    facade: Some(Facade {
        file: "broker.rs",
        types: &["Broker"],
        may_name: &["root", "wiring", "text", "grpc", "kafka", "peer_server", "facade"],
    }),
};

/// The storage engine.
pub const LOG: Layout = Layout {
    name: "log",
    order: &[
        &["root"],
        &["walrus"],
        &["store"],
        &["handle", "recovery"],
        &["commit"],
        &["log"],
        &["resources"],
        &["producers"],
        &["disk", "format", "compaction"],
        &["batch"], // below format: the mark of a batch stands in the batch's own header
        &["ground"],
    ],
    placed: &[
        ("lib.rs", "root"),
        ("fuzzing/block.rs", "root"),
        ("fuzzing/mod.rs", "root"),
        ("batch/error.rs", "ground"),
        ("bug.rs", "ground"),
        ("clock.rs", "ground"),
        ("digest.rs", "ground"),
        ("error.rs", "ground"),
        ("names.rs", "ground"),
        ("options.rs", "ground"),
        ("page.rs", "ground"),
        ("seeded.rs", "ground"),
        ("sync.rs", "ground"),
        ("types.rs", "ground"),
    ],
    facade: None,
};

/// The metadata.
pub const METADATA: Layout = Layout {
    name: "metadata",
    order: &[
        &["root"],
        &["apply"],
        &["rules"], // the state, and what is decided by it
        &["topic_config"],
        &["ground"],
    ],
    placed: &[
        ("lib.rs", "root"),
        ("census.rs", "rules"),
        ("clock.rs", "rules"),
        ("cluster_config.rs", "rules"),
        ("command.rs", "rules"),
        ("comparison.rs", "rules"),
        ("disks.rs", "rules"),
        ("expiry.rs", "rules"),
        ("levels.rs", "rules"),
        ("listing.rs", "rules"),
        ("lost.rs", "rules"),
        ("passes.rs", "rules"),
        ("placement.rs", "rules"),
        ("presence.rs", "rules"),
        ("recent.rs", "rules"),
        ("remembered.rs", "rules"),
        ("rejection.rs", "rules"),
        ("request.rs", "rules"),
        ("segment.rs", "rules"),
        ("snapshot.rs", "rules"),
        ("state.rs", "rules"),
        ("stop_impact.rs", "rules"),
        ("upkeep.rs", "rules"),
        ("answer.rs", "ground"),
        ("compaction.rs", "ground"),
        ("creations.rs", "ground"),
        ("leads.rs", "ground"),
        ("organisation.rs", "ground"),
        ("retention.rs", "ground"),
        ("rolling.rs", "ground"),
        ("sizes.rs", "ground"),
    ],
    facade: None,
};
