//! The rooms of the broker and of the engine: which there are, in which order, and where the files belong that do not lie
//! in the folder of their room yet. This file is the data of the rules in `rules.rs`.

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
    /// Where they are defined.
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
pub const LAYOUTS: &[&Layout] = &[&BROKER, &LOG];

/// The data plane.
pub const BROKER: Layout = Layout {
    name: "broker",
    order: &[
        &["root", "scenarios"], // what other crates see, the doors of the fuzz targets, tests over several rooms
        &["wiring"],            // starts everything, hands out new metadata
        &["text", "grpc", "kafka", "peer_server"],
        &["edge"],
        &["facade"],
        &["cursors"],
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
        ("data_plane.rs", "wiring"),
        ("publication.rs", "wiring"),
        ("broker.rs", "facade"),
        ("bucket.rs", "bucket"),
    ],
    facade: Some(Facade {
        file: "broker.rs",
        types: &["Broker", "WeakBroker"],
        may_name: &["root", "wiring", "text", "grpc", "kafka", "peer_server", "facade"],
    }),
};

/// The storage engine.
pub const LOG: Layout = Layout {
    name: "log",
    order: &[
        &["root"],
        &["store"],
        &["handle", "recovery"],
        &["commit"],
        &["log"],
        &["resources"],
        &["disk", "format"],
        &["batch"], // below format: the mark of a batch stands in the batch's own header
        &["ground"],
    ],
    placed: &[
        ("lib.rs", "root"),
        ("fuzzing/block.rs", "root"),
        ("fuzzing/mod.rs", "root"),
        ("store.rs", "store"),
        ("walrus/builder.rs", "store"),
        ("walrus/mod.rs", "store"),
        ("walrus/namespace.rs", "store"),
        ("walrus/topic_arrival.rs", "store"),
        ("inspection.rs", "store"),
        ("rendering.rs", "store"),
        ("repair.rs", "store"),
        ("arrivals.rs", "handle"),
        ("cursors.rs", "handle"),
        ("log/clean.rs", "handle"),
        ("log/compaction.rs", "handle"),
        ("log/group.rs", "handle"),
        ("log/lifecycle.rs", "handle"),
        ("log/mod.rs", "handle"),
        ("log/retaining.rs", "handle"),
        ("retention.rs", "handle"),
        ("ticket.rs", "handle"),
        ("committing.rs", "commit"),
        ("engine.rs", "commit"),
        ("tending.rs", "commit"),
        ("waiters.rs", "commit"),
        ("producers.rs", "log"),
        ("scan.rs", "log"),
        ("blocks/ahead.rs", "resources"),
        ("blocks/classes.rs", "resources"),
        ("blocks/file.rs", "resources"),
        ("blocks/mod.rs", "resources"),
        ("commit.rs", "resources"),
        ("journal/end.rs", "resources"),
        ("journal/fuzzing.rs", "resources"),
        ("journal/files.rs", "resources"),
        ("journal/header.rs", "resources"),
        ("journal/mod.rs", "resources"),
        ("journal/read.rs", "resources"),
        ("journal/record.rs", "resources"),
        ("journal/salvage.rs", "resources"),
        ("journal/spare.rs", "resources"),
        ("journal/state.rs", "resources"),
        ("space.rs", "resources"),
        ("tail.rs", "resources"),
        ("batch/error.rs", "ground"),
        ("bug.rs", "ground"),
        ("clock.rs", "ground"),
        ("digest.rs", "ground"),
        ("error.rs", "ground"),
        ("options.rs", "ground"),
        ("page.rs", "ground"),
        ("seeded.rs", "ground"),
        ("sync.rs", "ground"),
        ("types.rs", "ground"),
    ],
    facade: None,
};
