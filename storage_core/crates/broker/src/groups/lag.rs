//! How far groups are behind, as a metric: the coordinator of a group measures it, and nobody else. Only partitions in which a group
//! has committed are measured.

use std::collections::BTreeMap;

use walrus_groups::{GroupName, Place};
use walrus_metadata::Partition;

use super::service::GroupService;
use crate::node::metrics::GroupLag;
use crate::node::patience;

/// Limit on the committed offsets of one node's groups that are measured: each is a line of `/metrics`.
const MEASURED_MAX: usize = 10_000;
/// Partitions about whose ends is asked in one request.
const ASKED_MAX: usize = 1_000;

/// Measures it again and again, until the node stops.
pub(crate) async fn keep_measured(service: GroupService) {
    let tasks = service.topics().cluster().tasks().clone();
    let measuring = async {
        loop {
            tokio::time::sleep(patience::GROUP_LAG_LOOK).await;
            measure(&service).await;
        }
    };
    tasks.until_stopped(measuring).await;
}

/// Measures it once.
async fn measure(service: &GroupService) {
    let committed = committed(service);
    let ends = ends(service, &committed).await;
    let mut sums: BTreeMap<GroupName, u64> = BTreeMap::new();
    let mut shown = Vec::with_capacity(committed.len());
    for (group, place, offset) in committed {
        let Some((topic, end)) = ends.get(&place) else { continue };
        let lag = end.saturating_sub(offset);
        *sums.entry(group.clone()).or_default() += lag;
        let GroupName { org, name } = group;
        shown.push(GroupLag { org, group: name, topic: topic.clone(), partition: place.partition, lag });
    }
    service.note_lags(sums);
    service.topics().cluster().metrics().show_group_lags(shown);
}

/// The offsets of the groups that this node coordinates, as many as are measured.
fn committed(service: &GroupService) -> Vec<(GroupName, Place, u64)> {
    let mut found = Vec::new();
    for owner in service.owners() {
        let Some(term) = owner.term() else { continue };
        let left = MEASURED_MAX - found.len();
        let offsets = owner.with(term, |ledger| {
            let offsets = ledger.groups().flat_map(|(name, group)| {
                group.offsets().iter().map(move |(place, committed)| (name, place, committed.offset))
            });
            // An offset below zero is that of a client which means none.
            let sound = offsets.filter_map(|(name, place, offset)| {
                Some((name.clone(), *place, u64::try_from(offset).ok()?))
            });
            sound.take(left).collect::<Vec<_>>()
        });
        found.extend(offsets.into_iter().flatten());
    }
    found
}

/// The topics by name, and the ends of their partitions, as far as these are told.
async fn ends(
    service: &GroupService,
    committed: &[(GroupName, Place, u64)],
) -> BTreeMap<Place, (String, u64)> {
    let (mut named, mut partitions): (Vec<(Place, String)>, Vec<Partition>) = Default::default();
    {
        let routing = service.topics().cluster().routing();
        let mut places: Vec<Place> = committed.iter().map(|(_, place, _)| *place).collect();
        places.sort_unstable();
        places.dedup();
        for place in places {
            let Some(route) = routing.topic(place.topic) else { continue };
            let Ok(partition) = route.partition(place.partition) else { continue };
            named.push((place, route.path.name.to_string()));
            partitions.push(partition.clone());
        }
    }
    let reading = service.topics().reading();
    let mut ends = Vec::with_capacity(partitions.len());
    for asked in partitions.chunks(ASKED_MAX) {
        ends.extend(reading.told_ends(asked.to_vec()).await);
    }
    let told = named.into_iter().zip(ends).filter_map(|((place, topic), end)| Some((place, (topic, end?))));
    told.collect()
}
