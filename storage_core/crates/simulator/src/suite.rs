//! The suite of searches: small clusters, each with a few events of the kinds that together have broken designs before.

use walrus_model::Replication;

use crate::mistake::Mistake;
use crate::model::Events;
use crate::world::Setting;

/// A search.
#[derive(Clone, Debug)]
pub struct Search {
    /// Name of the search: what it is about.
    pub name: &'static str,
    /// The cluster.
    pub setting: Setting,
    /// The events that may happen to the cluster.
    pub events: Events,
}

/// All searches; with a mistake, if one is to be found.
#[must_use]
pub fn searches(mistake: Option<Mistake>) -> Vec<Search> {
    let none = Events { prompt_answers: true, ..Events::default() };
    let three = Setting {
        replication: Replication::DEFAULT,
        nodes: 3,
        written: 0,
        sealed: 0,
        idempotent: true,
        cleans: false,
        coordinates: false,
        mistake,
    };
    let filled = Setting { written: 3, ..three.clone() };
    // Three of them store the segment, and two are left for the next one.
    let five = Setting { nodes: 5, ..three.clone() };
    let plain = Setting { idempotent: false, ..three.clone() };
    let one = Setting { replication: Replication::single(), nodes: 2, ..three.clone() };
    // Each of the two sealed segments has records that a compaction drops, and tombstones.
    let compacted = Setting { written: 3, sealed: 2, cleans: true, ..three.clone() };
    let search = |name, setting: &Setting, events| Search { name, setting: setting.clone(), events };
    vec![
        search(
            "a crash and a recovery",
            &three,
            Events { appends: 1, recoveries: 1, crashes: 1, ..none.clone() },
        ),
        search(
            "late answers",
            &three,
            Events { appends: 1, recoveries: 1, prompt_answers: false, ..none.clone() },
        ),
        search("two recoverers", &three, Events { appends: 1, recoveries: 2, ..none.clone() }),
        search(
            "two recoverers and a torn tail",
            &three,
            Events { appends: 2, recoveries: 1, crashes: 1, rots: 1, ..none.clone() },
        ),
        search(
            "rot in one open copy",
            &filled,
            Events { recoveries: 1, crashes: 1, holes: 1, ..none.clone() },
        ),
        search(
            "rot in the open copies of all",
            &filled,
            Events { recoveries: 1, crashes: 3, holes: 3, ..none.clone() },
        ),
        search("a lost disk", &three, Events { appends: 1, recoveries: 1, lost_disks: 1, ..none.clone() }),
        search(
            "two lost disks",
            &five,
            Events { appends: 1, rolls: 1, recoveries: 2, lost_disks: 2, ..none.clone() },
        ),
        search(
            "a journal that lost its end",
            &three,
            Events { appends: 1, recoveries: 1, lost_journals: 1, ..none.clone() },
        ),
        search(
            "two journals that lost their ends",
            &five,
            Events { appends: 1, recoveries: 2, lost_journals: 2, ..none.clone() },
        ),
        search(
            "the only copy loses its journal's end",
            &one,
            Events { appends: 2, rolls: 1, recoveries: 2, lost_journals: 1, opens: 1, ..none.clone() },
        ),
        search(
            "a roll and a failover at once",
            &three,
            Events { appends: 2, rolls: 1, recoveries: 1, opens: 1, ..none.clone() },
        ),
        search(
            "a roll that carries what waits",
            &plain,
            Events { appends: 2, rolls: 1, recoveries: 1, opens: 1, ..none.clone() },
        ),
        search(
            "metadata forgets a roll",
            &three,
            Events { appends: 1, rolls: 1, recoveries: 2, opens: 1, roll_backs: 1, ..none.clone() },
        ),
        search(
            "metadata forgets a trim",
            &three,
            Events {
                appends: 1,
                rolls: 1,
                recoveries: 1,
                opens: 1,
                notices: 1,
                trims: 1,
                roll_backs: 1,
                ..none.clone()
            },
        ),
        search(
            "a death in the middle of a step",
            &three,
            Events { appends: 1, recoveries: 1, torn_steps: 1, ..none.clone() },
        ),
        search(
            "one copy, metadata forgets",
            &one,
            Events {
                appends: 2,
                rolls: 1,
                recoveries: 2,
                crashes: 1,
                opens: 2,
                roll_backs: 1,
                ..none.clone()
            },
        ),
        search("a compaction and a crash", &compacted, Events { passes: 1, crashes: 1, ..none.clone() }),
        search(
            "a compaction, metadata forget",
            &compacted,
            Events { passes: 1, roll_backs: 1, ..none.clone() },
        ),
    ]
}
