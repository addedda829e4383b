//! A cluster of data planes. In the place of Raft one lock orders the commands; everything else is what a node runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use uuid::Uuid;
use walrus_broker::{AppendAck, Broker, Config, DataPlane, PartitionRef, ReadOptions, Result};
use walrus_log::batch::{Batch, BatchBuilder, ProducerRef};
use walrus_log::{CrashChoice, LogId, SimulatedDisk};
use walrus_metadata::{
    Answer, Attempt, Command, Envelope, Epoch, Metadata, NodeId, Present, Replication, SegmentState, TopicId,
    apply, first_descriptor, recovery, successor, upkeep,
};

use crate::links::Links;

/// Longest that a test waits for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
const LEASE_MS: u64 = 3_600_000;

pub(crate) struct Cluster {
    directory: tempfile::TempDir,
    options: Value,
    /// By node; empty: the disk of this machine.
    disks: Vec<SimulatedDisk>,
    shared: Arc<Shared>,
    nodes: Vec<Node>,
}

struct Shared {
    cluster_id: Uuid,
    metadata: Mutex<Metadata>,
    planes: Mutex<Vec<Option<Arc<DataPlane>>>>,
    /// The metadata store answers nothing.
    away: AtomicBool,
    /// Nodes whose leases have lapsed.
    lapsed: Mutex<Vec<u32>>,
    /// Nodes that hear of nothing new.
    behind: Mutex<Vec<u32>>,
    /// Nodes that the metadata store does not answer.
    unheard: Mutex<Vec<u32>>,
    /// Between the nodes, where a test wants to interfere.
    links: Option<Links>,
}

/// The nodes as they run now, for whoever asks them from another thread.
#[derive(Clone)]
pub(crate) struct Nodes {
    shared: Arc<Shared>,
}

impl Nodes {
    /// One of them, by any number; `None`: it is down.
    pub(crate) fn broker(&self, number: usize) -> Option<Broker> {
        let planes = self.shared.planes.lock();
        planes[number % planes.len()].as_ref().map(|plane| plane.broker().clone())
    }
}

struct Node {
    disk: Uuid,
    plane: Arc<DataPlane>,
    host: Option<JoinHandle<()>>,
    stopped: Arc<AtomicBool>,
}

impl Cluster {
    /// Starts nodes 1..=count. `options` go into each config.
    pub(crate) fn start(count: u32, options: Value) -> Self {
        Self::start_on(Vec::new(), count, options)
    }

    /// The same with a simulated disk for each node.
    pub(crate) fn start_on(disks: Vec<SimulatedDisk>, count: u32, options: Value) -> Self {
        Self::found(disks, count, options, Replication::single(), None)
    }

    /// The same with more than one copy of each segment.
    pub(crate) fn start_replicated(count: u32, options: Value, replication: Replication) -> Self {
        Self::found(Vec::new(), count, options, replication, None)
    }

    /// The same with a network that can be interfered with.
    pub(crate) fn start_linked(count: u32, options: Value, replication: Replication) -> Self {
        Self::found(Vec::new(), count, options, replication, Some(Links::new()))
    }

    /// And with a simulated disk for each node.
    pub(crate) fn start_linked_on(
        disks: Vec<SimulatedDisk>,
        options: Value,
        replication: Replication,
    ) -> Self {
        let count = u32::try_from(disks.len()).unwrap();
        Self::found(disks, count, options, replication, Some(Links::new()))
    }

    fn found(
        disks: Vec<SimulatedDisk>,
        count: u32,
        options: Value,
        replication: Replication,
        links: Option<Links>,
    ) -> Self {
        drop(tracing_subscriber::fmt().with_test_writer().with_max_level(tracing::Level::DEBUG).try_init());
        let shared = Arc::new(Shared {
            cluster_id: Uuid::new_v4(),
            metadata: Mutex::default(),
            planes: Mutex::new((0..count).map(|_| None).collect()),
            away: AtomicBool::new(false),
            lapsed: Mutex::default(),
            behind: Mutex::default(),
            unheard: Mutex::default(),
            links,
        });
        let cluster_id = shared.cluster_id;
        shared.propose(Command::Bootstrap { cluster_id, replication }).expect("the first command");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut cluster = Self { directory, options, disks, shared, nodes: Vec::new() };
        for id in 1..=count {
            let node = cluster.start_node(id, Uuid::new_v4());
            cluster.nodes.push(node);
        }
        cluster
    }

    pub(crate) fn broker(&self, id: u32) -> Broker {
        self.plane(id).broker().clone()
    }

    pub(crate) fn plane(&self, id: u32) -> Arc<DataPlane> {
        self.nodes[id as usize - 1].plane.clone()
    }

    pub(crate) fn ids(&self) -> std::ops::RangeInclusive<u32> {
        1..=u32::try_from(self.nodes.len()).unwrap()
    }

    pub(crate) fn metadata(&self) -> Metadata {
        self.shared.metadata.lock().clone()
    }

    pub(crate) fn cluster_id(&self) -> Uuid {
        self.shared.cluster_id
    }

    pub(crate) fn data_dir(&self, id: u32) -> PathBuf {
        self.directory.path().join(format!("node-{id}"))
    }

    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime
            .block_on(async { tokio::time::timeout(PATIENCE * 2, future).await })
            .expect("a test that ends")
    }

    /// The same for what may take long under faults.
    pub(crate) fn block_on_long<T>(&self, future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let bounded = async { tokio::time::timeout(crate::load::PATIENCE, future).await };
        runtime.block_on(bounded).expect("a cluster that recovers")
    }

    pub(crate) fn nodes(&self) -> Nodes {
        Nodes { shared: self.shared.clone() }
    }

    pub(crate) fn links(&self) -> &Links {
        self.shared.links.as_ref().expect("a cluster with links")
    }

    /// Between a node and the metadata store nothing goes either way.
    pub(crate) fn isolate(&self, id: u32) {
        self.shared.unheard.lock().push(id);
        self.fall_behind(id);
    }

    /// Ends [`Cluster::isolate`].
    pub(crate) fn rejoin(&self, id: u32) {
        self.shared.unheard.lock().retain(|unheard| *unheard != id);
        self.catch_up(id);
    }

    /// Stops a node whose machine loses power: of what was not synced only a part is left.
    pub(crate) fn lose_power(&mut self, id: u32, left: CrashChoice) {
        let place = id as usize - 1;
        let lost_at = self.disks[place].changes();
        self.stop_unnoticed(id);
        self.disks[place] = self.disks[place].crash_image(lost_at, left);
    }

    /// Waits until every replica of every sealed segment has all of it, with its digest.
    pub(crate) fn wait_until_whole(&self) {
        wait_until("all copies of sealed segments are whole", crate::load::PATIENCE, || self.is_whole());
    }

    fn is_whole(&self) -> bool {
        let metadata = self.metadata();
        let partitions = metadata.topics.values().flat_map(|topic| &topic.partitions);
        partitions.flat_map(|partition| &partition.segments).all(|segment| {
            let SegmentState::Sealed(value) = &segment.state else { return true };
            segment.descriptor.replicas.iter().all(|replica| {
                let log = self.broker(replica.node.0).bucket().log(LogId(segment.descriptor.uuid));
                log.and_then(|log| log.sealed())
                    .is_some_and(|sealed| (sealed.end.0, sealed.digest) == (value.end.0, value.digest))
            })
        })
    }

    /// Stops a node's data plane, as a terminated process would; its leases lapse.
    pub(crate) fn stop(&mut self, id: u32) {
        self.shared.lapsed.lock().push(id);
        self.stop_unnoticed(id);
    }

    /// The same, and its leases have not lapsed yet.
    pub(crate) fn stop_unnoticed(&mut self, id: u32) {
        let node = &mut self.nodes[id as usize - 1];
        self.shared.planes.lock()[id as usize - 1] = None;
        node.stopped.store(true, Ordering::Relaxed);
        node.plane.stop(Duration::ZERO);
        node.host.take().expect("it runs").join().expect("the host's thread");
    }

    /// Starts a stopped node again: the same disk, another process.
    pub(crate) fn restart(&mut self, id: u32) {
        let disk = self.nodes[id as usize - 1].disk;
        self.shared.lapsed.lock().retain(|lapsed| *lapsed != id);
        self.nodes[id as usize - 1] = self.start_node(id, disk);
    }

    /// What nodes that start from now on are configured with besides.
    pub(crate) fn set_option(&mut self, name: &str, value: Value) {
        self.options[name] = value;
    }

    /// Whether the metadata store answers.
    pub(crate) fn set_metadata_away(&self, away: bool) {
        self.shared.away.store(away, Ordering::Relaxed);
    }

    /// Lets a node hear of no more metadata.
    pub(crate) fn fall_behind(&self, id: u32) {
        self.shared.behind.lock().push(id);
    }

    /// Lets it hear of all that it has missed.
    pub(crate) fn catch_up(&self, id: u32) {
        self.shared.behind.lock().retain(|behind| *behind != id);
        self.shared.publish(&self.metadata());
    }

    /// What an operator does to the metadata.
    pub(crate) fn command(&self, command: Command) {
        self.shared.propose(command).expect("a command that is taken");
    }

    /// One look of the node that leads the metadata at the copies of sealed segments.
    pub(crate) fn keep_copies(&self) {
        let metadata = self.metadata();
        let changes = upkeep(&metadata, &everybody(&metadata)).changes;
        for change in changes {
            drop(self.shared.propose(change.command())); // the next look sees what became of it
        }
    }

    /// Keeps the copies until something is so.
    pub(crate) fn keep_copies_until(&self, what: &str, is_so: impl Fn(&Metadata) -> bool) {
        wait_for(what, PATIENCE * 3, || {
            let metadata = self.metadata();
            if is_so(&metadata) {
                return Ok(());
            }
            self.keep_copies();
            Err(metadata.topics)
        });
    }

    /// Metadata forget what they like.
    pub(crate) fn rewrite(&self, change: impl FnOnce(&mut Metadata)) {
        change(&mut self.shared.metadata.lock());
        self.set_config(&[]);
    }

    /// Settings of the cluster.
    pub(crate) fn set_config(&self, entries: &[(&str, u64)]) {
        let set = entries.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect();
        self.command(Command::SetConfig { set, unset: Default::default() });
    }

    /// This node's disk.
    pub(crate) fn disk(&self, id: u32) -> Uuid {
        self.nodes[id as usize - 1].disk
    }

    fn start_node(&self, id: u32, disk: Uuid) -> Node {
        let process = Uuid::new_v4();
        let mut config = json!({
            "data_dir": self.data_dir(id),
            "cluster_id": self.shared.cluster_id,
            "node_id": id,
            "disk": disk,
            "process": process,
            "log_block_bytes": 256 << 10,
            "log_blocks_per_file": 16,
            "monitor_check_ms": 50,
            "append_wait_ms": 15_000,
            "lease_ms": LEASE_MS,
        });
        for (key, value) in self.options.as_object().into_iter().flatten() {
            config[key] = value.clone();
        }
        let config = Config::parse(&config.to_string()).unwrap();
        let plane = match self.disks.get(id as usize - 1) {
            Some(disk) => DataPlane::start_on(Arc::new(disk.clone()), config),
            None => DataPlane::start(config),
        };
        let plane = Arc::new(plane.unwrap());
        self.shared.planes.lock()[id as usize - 1] = Some(plane.clone());
        let addresses = plane.addresses();
        let register = Command::RegisterNode {
            wanted: Some(NodeId(id)),
            disk,
            process,
            raft_address: String::new(),
            peer_address: addresses["peer"].clone(),
            text_address: addresses["text"].clone(),
            grpc_address: addresses["grpc"].clone(),
            http_address: String::new(),
            admin_address: String::new(),
            name: String::new(),
            level: walrus_metadata::LEVEL,
        };
        assert_eq!(self.shared.propose(register).unwrap(), Answer::Node(NodeId(id)));
        let asked = clock_gettime(ClockId::Boottime);
        let asked_boottime_ms = u64::try_from(Duration::try_from(asked).unwrap().as_millis()).unwrap();
        self.shared.propose(Command::RenewLease { node: NodeId(id), process, asked_boottime_ms }).unwrap();

        let stopped = Arc::new(AtomicBool::new(false));
        let (shared, pulled, stop) = (self.shared.clone(), plane.clone(), stopped.clone());
        let host = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for (event, json) in pulled.poll_events(16, Duration::from_millis(20)) {
                    let answer = shared.handle(id, &serde_json::from_str(&json).unwrap());
                    pulled.complete(event, &answer.to_string()).unwrap();
                }
            }
        });
        Node { disk, plane, host: Some(host), stopped }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            node.stopped.store(true, Ordering::Relaxed);
            node.plane.stop(Duration::ZERO);
            if let Some(host) = node.host.take() {
                drop(host.join()); // its panic has been printed
            }
        }
    }
}

impl Shared {
    /// Applies a command and publishes what came of it.
    fn propose(&self, command: Command) -> Result<Answer, walrus_metadata::Rejected> {
        let (snapshot, outcome) = {
            let mut metadata = self.metadata.lock();
            let id = Uuid::new_v4();
            let envelope = Envelope { v: 1, id, at_ms: now_ms(), expect: None, command };
            let outcome = apply(&mut metadata, &envelope);
            (metadata.clone(), outcome)
        };
        self.publish(&snapshot);
        outcome.map(|applied| applied.answer)
    }

    /// Tells all nodes that are not behind.
    fn publish(&self, metadata: &Metadata) {
        let behind = self.behind.lock().clone();
        let same = Arc::new(metadata.clone());
        for (id, plane) in (1..).zip(self.planes.lock().iter()) {
            if let Some(plane) = plane.as_ref().filter(|_| !behind.contains(&id)) {
                plane.publish(
                    self.links.as_ref().map_or_else(|| same.clone(), |links| shown(metadata, links, id)),
                );
            }
        }
    }

    /// What the control plane does with an event.
    fn handle(&self, from: u32, event: &Value) -> Value {
        if self.away.load(Ordering::Relaxed) || self.unheard.lock().contains(&from) {
            return refusal("Unavailable", true);
        }
        let uuid = |name: &str| serde_json::from_value::<Uuid>(event[name].clone()).unwrap();
        let topic = || TopicId(uuid("topic"));
        let partition = || u32::try_from(event["partition"].as_u64().unwrap()).unwrap();
        let command = match event["kind"].as_str().unwrap() {
            "create_topic" => return self.create_topic(event),
            "begin_roll" => {
                let avoided = event["avoid"].as_array().unwrap().iter();
                let mut avoid: Vec<NodeId> =
                    avoided.map(|id| NodeId(u32::try_from(id.as_u64().unwrap()).unwrap())).collect();
                avoid.extend(self.lapsed.lock().iter().map(|id| NodeId(*id)));
                let (topic, partition, segment) = (topic(), partition(), uuid("segment"));
                let chosen = {
                    let metadata = self.metadata.lock();
                    successor(&metadata, topic, partition, Uuid::new_v4(), &avoid, &everybody(&metadata))
                };
                let Some(successor) = chosen else { return refusal("NoHealthyNode", true) };
                let command = Command::BeginRoll { topic, partition, segment, successor: successor.clone() };
                return match self.propose(command) {
                    Ok(_) => json!({"ok": {"successor": successor}}),
                    Err(rejected) => rejection(&rejected),
                };
            }
            "begin_recovery" => return self.begin_recovery(event, (topic(), partition()), uuid("segment")),
            "seal_and_open" => Command::SealAndOpen {
                topic: topic(),
                partition: partition(),
                segment: uuid("segment"),
                value: serde_json::from_value(event["value"].clone()).unwrap(),
            },
            "trim" => Command::Trim {
                topic: topic(),
                partition: partition(),
                below_number: event["below_number"].as_u64().unwrap(),
                first: serde_json::from_value(event["first"].clone()).unwrap(),
            },
            "report_copies" => Command::ReportCopies {
                replica: serde_json::from_value(event["replica"].clone()).unwrap(),
                reports: serde_json::from_value(event["reports"].clone()).unwrap(),
            },
            "delete_topic" => Command::DeleteTopic { topic: topic() },
            "allocate_producer_ids" => Command::AllocateProducerIds {
                count: u32::try_from(event["count"].as_u64().unwrap()).unwrap(),
            },
            "node_state" => {
                let node = NodeId(from);
                let process = self.metadata.lock().nodes[&node].process;
                let state = serde_json::from_value(event["state"].clone()).unwrap();
                Command::SetNodeState { node, process, state }
            }
            other => panic!("an event of kind {other}"),
        };
        match self.propose(command) {
            Ok(Answer::ProducerIds { first, count }) => json!({"ok": {"first": first, "count": count}}),
            Ok(_) => json!({"ok": {}}),
            Err(rejected) => rejection(&rejected),
        }
    }

    fn begin_recovery(&self, event: &Value, place: (TopicId, u32), segment: Uuid) -> Value {
        let number = |value: &Value| u32::try_from(value.as_u64().unwrap()).unwrap();
        let mut avoid: Vec<NodeId> =
            event["avoid"].as_array().unwrap().iter().map(|id| NodeId(number(id))).collect();
        avoid.extend(self.lapsed.lock().iter().map(|id| NodeId(*id)));
        let chosen = {
            let metadata = self.metadata.lock();
            let ids = (Uuid::new_v4(), Uuid::new_v4());
            recovery(&metadata, place, ids, Epoch(number(&event["above"])), &avoid, &everybody(&metadata))
        };
        let Some(Attempt { ballot, successor }) = chosen else { return refusal("NoHealthyNode", true) };
        let (topic, partition) = place;
        let answer = json!({"ok": {"ballot": ballot, "successor": successor}});
        match self.propose(Command::BeginRecovery { topic, partition, segment, ballot, successor }) {
            Ok(_) => answer,
            Err(rejected) => rejection(&rejected),
        }
    }

    fn create_topic(&self, event: &Value) -> Value {
        let name = event["name"].as_str().unwrap().to_owned();
        let id = TopicId(Uuid::new_v4());
        let partitions = u32::try_from(event["partitions"].as_u64().unwrap()).unwrap();
        let first = {
            let metadata = self.metadata.lock();
            let present = everybody(&metadata);
            let first = |partition| first_descriptor(&metadata, id, partition, Uuid::new_v4(), &present);
            (0..partitions).map(|partition| first(partition).expect("a healthy node")).collect()
        };
        let org = event["org"].as_str().unwrap().to_owned();
        let internal = event["internal"].as_bool().unwrap();
        match self.propose(Command::CreateTopic { topic: id, org, name, internal, first }) {
            Ok(_) => json!({"ok": {"topic": id, "created": true}}),
            Err(walrus_metadata::Rejected::TopicExists { topic, .. }) => {
                json!({"ok": {"topic": topic, "created": false}})
            }
            Err(rejected) => rejection(&rejected),
        }
    }
}

/// Nobody's lease lapses by itself here.
fn everybody(metadata: &Metadata) -> Present {
    Present::only(metadata.nodes.keys().copied())
}

/// The metadata as one node sees them: the others are behind its links to them.
fn shown(metadata: &Metadata, links: &Links, to: u32) -> Arc<Metadata> {
    let mut shown = metadata.clone();
    for (NodeId(id), node) in &mut shown.nodes {
        if *id != to {
            node.peer_address = links.address(to, *id, &node.peer_address);
        }
    }
    Arc::new(shown)
}

/// As the control plane names it.
fn rejection(rejected: &walrus_metadata::Rejected) -> Value {
    let named = serde_json::to_value(rejected).unwrap();
    json!({"error": {"reason": named["reason"], "message": rejected.to_string(), "retryable": false}})
}

fn refusal(reason: &str, retryable: bool) -> Value {
    json!({"error": {"reason": reason, "message": reason, "retryable": retryable}})
}

/// Looks again and again until there is something; the last failure is told if it is not there in time.
pub(crate) fn wait_for<T, E: std::fmt::Debug>(
    what: &str,
    patience: Duration,
    mut look: impl FnMut() -> Result<T, E>,
) -> T {
    let until = Instant::now() + patience;
    loop {
        match look() {
            Ok(found) => return found,
            Err(failure) => assert!(Instant::now() < until, "not in time: {what}: {failure:#?}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The same for what needs no more words.
pub(crate) fn wait_until(what: &str, patience: Duration, mut is_so: impl FnMut() -> bool) {
    wait_for(what, patience, || is_so().then_some(()).ok_or("not so"));
}

pub(crate) fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// A batch of records with these values.
pub(crate) fn batch_of(values: &[String], producer: Option<ProducerRef>) -> Bytes {
    let mut builder = BatchBuilder::new();
    if let Some(producer) = producer {
        builder.producer(producer);
    }
    for value in values {
        builder.push(None, Some(value.as_bytes()), 1_700_000_000_000, &[]);
    }
    let mut bytes = Vec::new();
    builder.build(&mut bytes).unwrap();
    bytes.into()
}

pub(crate) async fn put(broker: &Broker, to: &PartitionRef, value: &str) -> Result<AppendAck> {
    broker.append(to, batch_of(&[value.to_owned()], None)).await
}

pub(crate) fn options(wait: Duration) -> ReadOptions {
    ReadOptions { bytes_max: 64 << 10, wait, segment: None }
}

/// Reads values and their offsets from `offset` until there are `count`.
pub(crate) async fn read_values(
    broker: &Broker,
    from: &PartitionRef,
    mut offset: u64,
    count: usize,
) -> Vec<(u64, String)> {
    let until = Instant::now() + PATIENCE;
    let mut values = Vec::new();
    while values.len() < count {
        assert!(Instant::now() < until, "{} of {count} values after a long time", values.len());
        let page = match broker.read(from, offset, options(Duration::from_secs(2))).await {
            Ok(page) => page,
            Err(error) if error.retryable() => {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        for bytes in &page.batches {
            let (batch, _) = Batch::parse(bytes).unwrap();
            for record in
                batch.records().map(|record| record.unwrap()).filter(|record| record.offset >= offset)
            {
                values.push((record.offset, String::from_utf8(record.value.unwrap().to_vec()).unwrap()));
            }
        }
        offset = page.next_offset;
    }
    values
}

/// How many segments of a partition are sealed.
pub(crate) fn sealed_count(metadata: &Metadata, topic: &str) -> usize {
    let topic = &metadata.topics[&metadata.names["default"][topic]];
    let sealed = |segment: &&walrus_metadata::Segment| matches!(segment.state, SegmentState::Sealed(_));
    topic.partitions[0].segments.iter().filter(sealed).count()
}
