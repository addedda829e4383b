//! A load of idempotent producers that go on whatever happens, and a check whether what they were told is true in the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use walrus_broker::{Broker, PartitionRef};
use walrus_log::batch::ProducerRef;

use crate::client::{batch_of, read_values};
use crate::harness::{Cluster, Nodes, wait_for};

/// Longest wait for whatever a cluster under faults must bring about in the end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// Longest wait for one answer: a node that was stopped gives none.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two tries of a producer.
const PAUSE: Duration = Duration::from_millis(10);

/// The offsets of acknowledged records, by value.
type Acked = Arc<Mutex<BTreeMap<String, u64>>>;

/// Producers at work, and what was acknowledged to them.
pub(crate) struct Load {
    topic: PartitionRef,
    acked: Acked,
    stop: Arc<AtomicBool>,
    producers: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts producers; each asks one node after the other until its record is taken.
    pub(crate) fn start(cluster: &Cluster, topic: &PartitionRef, count: u32) -> Self {
        let (acked, stop) = (Acked::default(), Arc::new(AtomicBool::new(false)));
        let producer = |number: u32| {
            let (nodes, topic, acked, stop) = (cluster.nodes(), topic.clone(), acked.clone(), stop.clone());
            let id = cluster.block_on(async { cluster.broker(1).init_producer() });
            std::thread::spawn(move || produce(&nodes, &topic, number, id, &acked, &stop))
        };
        let producers = (1..=count).map(producer).collect();
        Self { topic: topic.clone(), acked, stop, producers }
    }

    pub(crate) fn acked(&self) -> usize {
        self.acked.lock().len()
    }

    /// Waits until `count` more appends were acknowledged.
    pub(crate) fn wait_for_more(&self, count: usize) {
        let wanted = self.acked() + count;
        wait_for("appends are acknowledged", PATIENCE, || match self.acked() {
            acked if acked >= wanted => Ok(()),
            acked => Err(format!("{acked} of {wanted}")),
        });
    }

    /// Ends the producers and compares what they were told with what every node in `readers` serves: each acknowledged
    /// record once, at its offset, nothing twice, each producer's in order.
    pub(crate) fn finish(self, cluster: &Cluster, readers: impl IntoIterator<Item = u32>) {
        self.stop.store(true, Ordering::Relaxed);
        self.producers.into_iter().for_each(|producer| producer.join().unwrap());
        let acked = self.acked.lock();
        let end = acked.values().max().unwrap() + 1;
        let mut first: Option<Vec<(u64, String)>> = None;
        for id in readers {
            let count = usize::try_from(end).unwrap();
            let values = cluster.block_on_long(read_values(&cluster.broker(id), &self.topic, 0, count));
            let values = values[..count].to_vec();
            let first = first.get_or_insert_with(|| {
                check(&acked, &values);
                values.clone()
            });
            assert_eq!(*first, values, "node {id} serves other records");
        }
    }
}

fn check(acked: &BTreeMap<String, u64>, values: &[(u64, String)]) {
    let mut places: BTreeMap<&str, u64> = BTreeMap::new();
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    for (place, (offset, value)) in values.iter().enumerate() {
        assert_eq!(place as u64, *offset, "offsets have no gap");
        assert_eq!(places.insert(value, *offset), None, "{value} is there twice");
        let (producer, sequence) = value.split_once('/').unwrap();
        let sequence: u64 = sequence.parse().unwrap();
        assert!(
            last.insert(producer, sequence).is_none_or(|before| before + 1 == sequence),
            "{value} is out of order"
        );
    }
    for (value, offset) in acked {
        assert_eq!(places.get(value.as_str()), Some(offset), "{value} was acknowledged");
    }
}

fn produce(
    nodes: &Nodes,
    topic: &PartitionRef,
    number: u32,
    id: (i64, i16),
    acked: &Acked,
    stop: &AtomicBool,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut asked = number as usize;
    for sequence in 0.. {
        let value = format!("{number}/{sequence}");
        let producer = ProducerRef { id: id.0, epoch: id.1, base_sequence: sequence };
        let batch = batch_of(std::slice::from_ref(&value), Some(producer));
        loop {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let broker: Option<Broker> = nodes.broker(asked);
            let answer = broker.map(|broker| {
                let appended = broker.append(topic, batch.clone());
                runtime.block_on(async { tokio::time::timeout(ANSWER_PATIENCE, appended).await })
            });
            match answer {
                Some(Ok(Ok(ack))) => {
                    acked.lock().insert(value, ack.base_offset);
                    break;
                }
                Some(Ok(Err(error))) => tracing::debug!(value, %error, "an append is tried again"),
                Some(Err(_)) => tracing::debug!(value, "an append that nobody answers is tried again"),
                None => {}
            }
            asked += 1;
            std::thread::sleep(PAUSE);
        }
    }
}
