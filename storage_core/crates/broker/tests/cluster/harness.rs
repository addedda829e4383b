//! The harness: a cluster of data planes. In the place of Raft one lock orders the commands; everything else is what a node
//! runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use uuid::Uuid;
use walrus_broker::{Broker, Config, DataPlane, StartError};
use walrus_log::{CrashChoice, LogId, SimulatedDisk};
use walrus_metadata::{
    Answer, Command, DEFAULT_ORG, Listener, Metadata, SegmentState, partitions_past_retention, upkeep,
};
use walrus_model::{DiskId, NodeId, ProcessId, Replication};

use crate::links::Links;
use crate::metadata::{Shared, everybody};

/// Longest that a test waits for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
const LEASE_MS: u64 = 3_600_000;
/// Pause between two renewals of the leases of a node that renews them.
const RENEWAL_PAUSE: Duration = Duration::from_millis(50);

/// A cluster of nodes that run in this process.
pub(crate) struct Cluster {
    directory: tempfile::TempDir,
    options: Value,
    /// The simulated disks by node; empty if nodes use the disk of this machine.
    disks: Vec<SimulatedDisk>,
    shared: Arc<Shared>,
    nodes: Vec<Node>,
}

/// The nodes as they run now, for whoever asks them from another thread.
#[derive(Clone)]
pub(crate) struct Nodes {
    shared: Arc<Shared>,
}

impl Nodes {
    /// The broker of the node that a number falls to; `None` if it is down.
    pub(crate) fn broker(&self, number: usize) -> Option<Broker> {
        let planes = self.shared.planes.lock();
        planes[number % planes.len()].as_ref().map(|plane| plane.broker().clone())
    }
}

/// A node that runs, and the command that lists it.
struct MadeNode {
    disk: DiskId,
    plane: Arc<DataPlane>,
    registration: Command,
}

/// Nodes that renew their leases, until this is dropped.
pub(crate) struct Renewing {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Renewing {
    fn drop(&mut self) {
        drop(self.stop.take());
        drop(self.thread.take().map(JoinHandle::join));
    }
}

struct Node {
    disk: DiskId,
    plane: Arc<DataPlane>,
    host: Option<JoinHandle<()>>,
    stopped: Arc<AtomicBool>,
}

impl Cluster {
    /// Starts nodes 1..=count. `options` go into each config.
    pub(crate) fn start(count: u32, options: Value) -> Self {
        Self::start_on(Vec::new(), count, options)
    }

    /// Starts nodes with a simulated disk each.
    pub(crate) fn start_on(disks: Vec<SimulatedDisk>, count: u32, options: Value) -> Self {
        Self::found(disks, count, options, Replication::single(), None)
    }

    /// Starts nodes with more than one copy of each segment.
    pub(crate) fn start_replicated(count: u32, options: Value, replication: Replication) -> Self {
        Self::found(Vec::new(), count, options, replication, None)
    }

    /// Starts nodes with a network between them that can be interfered with.
    pub(crate) fn start_linked(count: u32, options: Value, replication: Replication) -> Self {
        Self::found(Vec::new(), count, options, replication, Some(Links::new()))
    }

    /// Starts nodes with relays between them and a simulated disk each.
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
            late: Mutex::default(),
            unheard: Mutex::default(),
            refused: Mutex::default(),
            links,
        });
        let cluster_id = shared.cluster_id;
        shared.propose(Command::Bootstrap { cluster_id, replication }).expect("the first command");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut cluster = Self { directory, options, disks, shared, nodes: Vec::new() };
        for id in 1..=count {
            let node = cluster.start_node(id, DiskId(Uuid::new_v4()));
            cluster.nodes.push(node);
        }
        cluster.command(Command::RaiseLevel { level: walrus_metadata::LEVEL });
        if cluster.options.get("listeners").is_some() {
            for (id, node) in (1..).zip(&cluster.nodes) {
                cluster.command(cluster.registration(id, node.disk, &node.plane));
            }
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

    /// Runs a future that may take long under faults.
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

    /// Cuts a node off from the metadata store in both directions.
    pub(crate) fn isolate(&self, id: u32) {
        self.shared.unheard.lock().push(id);
        self.fall_behind(id);
    }

    /// Ends [`Cluster::isolate`].
    pub(crate) fn rejoin(&self, id: u32) {
        self.shared.unheard.lock().retain(|unheard| *unheard != id);
        self.catch_up(id);
    }

    /// Stops a node whose machine loses power: only a part is left of what was not synced.
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
                let log = self.broker(replica.node.0).bucket().log(LogId(segment.descriptor.id.0));
                log.and_then(|log| log.sealed())
                    .is_some_and(|sealed| (sealed.end.0, sealed.digest) == (value.end.0, value.digest.0))
            })
        })
    }

    /// Stops a node's data plane, as a terminated process would; its leases lapse.
    pub(crate) fn stop(&mut self, id: u32) {
        self.shared.lapsed.lock().push(id);
        self.stop_unnoticed(id);
    }

    /// Stops a node's data plane, and its leases do not lapse yet.
    pub(crate) fn stop_unnoticed(&mut self, id: u32) {
        let node = &mut self.nodes[id as usize - 1];
        self.shared.planes.lock()[id as usize - 1] = None;
        node.stopped.store(true, Ordering::Relaxed);
        node.plane.stop(Duration::ZERO);
        node.host.take().expect("it runs").join().expect("the host's thread");
    }

    /// Starts a stopped node again on the same disk, as another process.
    pub(crate) fn restart(&mut self, id: u32) {
        let disk = self.nodes[id as usize - 1].disk;
        self.shared.lapsed.lock().retain(|lapsed| *lapsed != id);
        self.nodes[id as usize - 1] = self.start_node(id, disk);
    }

    /// Starts a stopped node again, which cannot reach the metadata: they do not hear of its new process, only where it is now.
    pub(crate) fn restart_unheard(&mut self, id: u32) {
        let (disk, before) = (self.nodes[id as usize - 1].disk, self.metadata().nodes[&NodeId(id)].process);
        let mut node = self.make_node(id, disk, ProcessId(Uuid::new_v4()));
        let Command::RegisterNode { process, .. } = &mut node.registration else { unreachable!() };
        *process = before;
        self.nodes[id as usize - 1] = self.list_node(id, node);
        self.shared.unheard.lock().push(id);
        self.fall_behind(id);
    }

    /// Has these nodes renew their leases, again and again, until the answer is dropped.
    pub(crate) fn keep_renewing(&self, ids: Vec<u32>) -> Renewing {
        let (shared, (stop, stopped)) = (self.shared.clone(), std::sync::mpsc::channel::<()>());
        let thread = std::thread::spawn(move || {
            loop {
                ids.iter().for_each(|id| shared.renew_lease(*id));
                if stopped.recv_timeout(RENEWAL_PAUSE) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        });
        Renewing { stop: Some(stop), thread: Some(thread) }
    }

    /// Has a new node join, on an empty disk; answers its number.
    pub(crate) fn join(&mut self) -> u32 {
        let id = self.ids().end() + 1;
        self.shared.planes.lock().push(None);
        let node = self.start_node(id, DiskId(Uuid::new_v4()));
        self.nodes.push(node);
        id
    }

    /// Has a stopped node, whose journal lost its end, come back as another disk: what it stored is left to fetch from.
    pub(crate) fn come_back_as_another(&mut self, id: u32) -> u32 {
        let former = self.data_dir(*self.ids().end() + 1).join("former").join(self.disk(id).to_string());
        std::fs::create_dir_all(&former).unwrap();
        std::fs::rename(self.data_dir(id).join("log"), former.join("log")).unwrap();
        let number = self.join();
        self.declare_gone(id);
        number
    }

    /// Declares that the disk of a stopped node will never be back.
    pub(crate) fn declare_gone(&self, id: u32) {
        let disk = self.disk(id);
        self.command(Command::RemoveNode { node: NodeId(id), disk, lost: true, replaced_by: None });
    }

    /// Sets an option of nodes that start from now on.
    pub(crate) fn set_option(&mut self, name: &str, value: Value) {
        self.options[name] = value;
    }

    /// Sets whether the metadata store answers nothing.
    pub(crate) fn set_metadata_away(&self, away: bool) {
        self.shared.away.store(away, Ordering::Relaxed);
    }

    /// Whether a node asked the metadata store in vain with a request of that kind.
    pub(crate) fn was_refused(&self, id: u32, kind: &str) -> bool {
        self.shared.refused.lock().iter().any(|(from, asked)| *from == id && asked == kind)
    }

    /// Lets the leases of a node lapse: it gets no new segment.
    pub(crate) fn let_lapse(&self, id: u32) {
        self.shared.lapsed.lock().push(id);
    }

    /// Lets a node hear of no more metadata.
    pub(crate) fn fall_behind(&self, id: u32) {
        self.shared.behind.lock().push(id);
    }

    /// Lets a node hear of metadata only when it asks for something.
    pub(crate) fn be_late(&self, id: u32) {
        self.shared.late.lock().push(id);
        self.fall_behind(id);
    }

    /// Lets a node hear of all that it has missed.
    pub(crate) fn catch_up(&self, id: u32) {
        self.shared.behind.lock().retain(|behind| *behind != id);
        self.shared.publish(&self.metadata());
    }

    /// Changes the metadata with a command, as an operator does.
    pub(crate) fn command(&self, command: Command) {
        self.shared.propose(command).expect("a command that is taken");
    }

    /// Does what the node that leads the metadata does at each look at the copies of sealed segments.
    pub(crate) fn keep_copies(&self) {
        let metadata = self.metadata();
        let changes = upkeep(&metadata, &everybody(&metadata)).changes;
        for change in changes {
            drop(self.shared.propose(change.command())); // the next look sees what became of it
        }
    }

    /// Does what the node that leads the metadata does at each look at what topics keep.
    pub(crate) fn let_go(&self) {
        let partitions = partitions_past_retention(&self.metadata(), usize::MAX);
        if !partitions.is_empty() {
            self.command(Command::Expire { partitions });
        }
    }

    /// Keeps the copies, and lets go what topics do not keep, until `is_so` holds.
    pub(crate) fn let_go_until(&self, what: &str, is_so: impl Fn(&Metadata) -> bool) {
        let _renewing = self.keep_renewing(self.ids().collect());
        self.keep_copies_until(what, |metadata| {
            self.let_go();
            is_so(metadata)
        });
    }

    /// Keeps the copies until `is_so` holds.
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

    /// Changes the metadata past all rules, as a rollback may.
    pub(crate) fn rewrite(&self, change: impl FnOnce(&mut Metadata)) {
        change(&mut self.shared.metadata.lock());
        self.set_config(&[]);
    }

    /// Changes settings of the cluster.
    pub(crate) fn set_config(&self, entries: &[(&str, u64)]) {
        let set = entries.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect();
        self.command(Command::SetConfig { set, unset: Default::default() });
    }

    /// The id of a node's disk.
    pub(crate) fn disk(&self, id: u32) -> DiskId {
        self.nodes[id as usize - 1].disk
    }

    /// The error with which a stopped node does not start again.
    pub(crate) fn refused_start(&self, id: u32) -> StartError {
        let config = self.config(id, self.disk(id), ProcessId(Uuid::new_v4()));
        DataPlane::start(config).err().expect("it does not start")
    }

    fn config(&self, id: u32, disk: DiskId, process: ProcessId) -> Config {
        let mut config = json!({
            "data_dir": self.data_dir(id),
            "cluster_id": self.shared.cluster_id,
            "node_id": id,
            "disk": disk,
            "process": process,
            "log_block_bytes": 256 << 10,
            "log_blocks_per_file": 16,
            "monitor_check_ms": 50,
            "segment_age_ms_min": 0,
            "append_wait_ms": 15_000,
            "lease_ms": LEASE_MS,
            "workers": 1 + id % 3, // the same on any machine: several race with each other, and one must be enough
        });
        for (key, value) in self.options.as_object().into_iter().flatten() {
            config[key] = value.clone();
        }
        Config::parse(&config.to_string()).unwrap()
    }

    /// The command that registers a node; it names listeners of organisations once the cluster knows of such.
    fn registration(&self, id: u32, disk: DiskId, plane: &DataPlane) -> Command {
        let addresses = plane.addresses();
        let process = plane.identity()["process"].as_str().and_then(|process| process.parse().ok());
        let of_org = |(name, address): (&String, &String)| {
            let (protocol, own) = name.split_once('/')?;
            let (own, address) = (own.to_owned(), address.clone());
            let options = self.options["listeners"].as_array().into_iter().flatten();
            let mut of_name =
                options.filter(|one| one["name"] == own.as_str() && one["protocol"] == protocol);
            let org = of_name.find_map(|one| one["org"].as_str()).unwrap_or(DEFAULT_ORG).to_owned();
            let protocol = serde_json::from_value(json!(protocol)).expect("a protocol");
            Some(Listener { protocol, name: own, org, address })
        };
        let are_known = self.metadata().level == walrus_metadata::LEVEL;
        Command::RegisterNode {
            wanted: Some(NodeId(id)),
            disk,
            process: ProcessId(process.expect("a uuid")),
            raft_address: String::new(),
            peer_address: addresses["peer"].clone(),
            text_address: addresses["text"].clone(),
            grpc_address: addresses["grpc"].clone(),
            http_address: String::new(),
            admin_address: String::new(),
            listeners: addresses.iter().filter(|_| are_known).filter_map(of_org).collect(),
            name: String::new(),
            zone: String::new(),
            level: walrus_metadata::LEVEL,
        }
    }

    fn start_node(&self, id: u32, disk: DiskId) -> Node {
        let made = self.make_node(id, disk, ProcessId(Uuid::new_v4()));
        self.list_node(id, made)
    }

    /// Starts the data plane of a node, of which the metadata do not know yet.
    fn make_node(&self, id: u32, disk: DiskId, process: ProcessId) -> MadeNode {
        let config = self.config(id, disk, process);
        let plane = match self.disks.get(id as usize - 1) {
            Some(disk) => DataPlane::start_on(Arc::new(disk.clone()), config),
            None => DataPlane::start(config),
        };
        let plane = Arc::new(plane.unwrap());
        self.shared.planes.lock()[id as usize - 1] = Some(plane.clone());
        MadeNode { disk, registration: self.registration(id, disk, &plane), plane }
    }

    /// Lists a node in the metadata, which its host asks from here on.
    fn list_node(&self, id: u32, MadeNode { disk, plane, registration }: MadeNode) -> Node {
        assert_eq!(self.shared.propose(registration).unwrap(), Answer::Node(NodeId(id)));
        self.shared.renew_lease(id);
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

/// Looks again and again until there is something; panics with the last failure if it is not there in time.
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

/// Looks again and again until `is_so` holds; panics if it does not in time.
pub(crate) fn wait_until(what: &str, patience: Duration, mut is_so: impl FnMut() -> bool) {
    wait_for(what, patience, || is_so().then_some(()).ok_or("not so"));
}

/// How many segments of a partition are sealed.
pub(crate) fn sealed_count(metadata: &Metadata, topic: &str) -> usize {
    let topic = &metadata.topics[&metadata.names["default"][topic]];
    let sealed = |segment: &&walrus_metadata::Segment| matches!(segment.state, SegmentState::Sealed(_));
    topic.partitions[0].segments.iter().filter(sealed).count()
}
