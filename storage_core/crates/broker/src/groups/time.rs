//! What is due in groups: sessions that end, generations that are formed without those who did not come, groups that are forgotten.

use std::time::{Duration, Instant};

use super::service::GroupService;
use crate::node::patience;

/// Does it, until the node stops.
pub(crate) async fn keep_time(service: GroupService) {
    let tasks = service.topics().cluster().tasks().clone();
    let ticking = async {
        let (mut expired, mut ticked) = (Instant::now(), Instant::now());
        loop {
            tokio::time::sleep(patience::GROUP_TICK).await;
            let since_tick = ticked.elapsed();
            ticked = Instant::now();
            let may_expire = expired.elapsed() >= patience::GROUP_EXPIRY_LOOK;
            if may_expire {
                expired = Instant::now();
            }
            let stood_still = Some(since_tick).filter(|time| *time >= patience::GROUP_STANDSTILL);
            tick(&service, stood_still, may_expire);
        }
    };
    tasks.until_stopped(ticking).await;
}

fn tick(service: &GroupService, stood_still: Option<Duration>, may_expire: bool) {
    let topics = service.topics();
    if let Some(time) = stood_still {
        tracing::warn!(?time, "this process stood still: members of groups have a whole session from now on");
    }
    // One clock that jumps deletes nothing: this is the time that most of the nodes have reached.
    let reached_ms = i64::try_from(topics.cluster().routing().metadata.reached_ms()).unwrap_or(0);
    for owner in service.owners() {
        if owner.term().is_none() {
            continue;
        }
        owner.end_if_lost(topics);
        let Some(term) = owner.term() else { continue };
        let ticked = owner.with(term, |ledger| {
            if let Some(time) = stood_still {
                ledger.stood_still(time);
            }
            ledger.tick();
            if may_expire {
                ledger.expire(reached_ms);
            }
        });
        if ticked.is_ok() {
            owner.record(topics);
        }
    }
}
