//! Tests with more idempotent producers than a partition remembers.

use futures_util::future::join_all;
use serde_json::json;
use tonic::Code;
use walrus_broker::PartitionRef;
use walrus_log::batch::ProducerRef;

use crate::client::batch_of;
use crate::grpc_log::{connect, create, ready, reason};
use crate::harness::Cluster;

/// Number of producers that a log remembers.
const PRODUCERS: i64 = 1 << 16;
/// Limit on the appends under way at a time.
const AT_ONCE: u16 = 2048;

/// 65,537 ids made a partition forget those that had been silent for longest, and their repetitions were stored twice.
#[test]
fn a_producer_too_many_is_refused_retriably_and_the_repetition_of_a_silent_one_is_recognised() {
    let cluster = Cluster::start(1, json!({}));
    let batch =
        |id, base_sequence| batch_of(&["x".to_owned()], Some(ProducerRef { id, epoch: 0, base_sequence }));
    cluster.block_on_long(async {
        let mut client = connect(&cluster, 1).await;
        create(&mut client, "t").await;
        let (broker, partition) = (cluster.broker(1), PartitionRef::parse("t", 0).unwrap());
        // The first one is acknowledged, and silent from then on.
        let first = client.append(ready("t", batch(0, 0))).await.unwrap().into_inner();
        assert!(!first.duplicate);
        for begin in (1..PRODUCERS).step_by(usize::from(AT_ONCE)) {
            let ids = begin..(begin + i64::from(AT_ONCE)).min(PRODUCERS);
            let acks = join_all(ids.map(|id| broker.append(&partition, batch(id, 0)))).await;
            assert!(acks.into_iter().all(|ack| !ack.unwrap().duplicate));
        }
        let refused = client.append(ready("t", batch(PRODUCERS, 0))).await.unwrap_err();
        assert_eq!(
            (refused.code(), reason(&refused).as_str()),
            (Code::ResourceExhausted, "TooManyProducers"),
            "{refused:?}"
        );
        let refused = broker.append(&partition, batch(PRODUCERS, 0)).await.unwrap_err();
        assert!(refused.retryable(), "{refused}");
        // Those that are remembered go on: a repetition is one, and the next batch is new.
        let again = client.append(ready("t", batch(0, 0))).await.unwrap().into_inner();
        assert_eq!((again.base_offset, again.duplicate), (first.base_offset, true));
        let next = client.append(ready("t", batch(0, 1))).await.unwrap().into_inner();
        assert_eq!(
            (next.base_offset, next.duplicate),
            (PRODUCERS as u64, false),
            "nothing refused was stored"
        );
    });
}
