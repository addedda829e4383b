//! A node without listeners, whose requests to the metadata store the test carries out, or refuses.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::json;
use tokio::runtime::Handle;
use uuid::Uuid;
use walrus_log::Store;
use walrus_log::batch::BatchBuilder;
use walrus_metadata::{
    Command, CommandRejection, Conclusion, Envelope, Metadata, NodeState, Plan, Present, Request,
    RequestError, Response, Segment, apply, plan,
};
use walrus_model::{DiskId, NodeId, ProcessId, Replication, TopicId};

use crate::Metrics;
use crate::bucket::Bucket;
use crate::cluster::Cluster;
use crate::copies::Copies;
use crate::copies::left::LeftLogs;
use crate::copies::table::CopyTable;
use crate::node::config::Config;
use crate::node::names::PartitionRef;
use crate::node::secret::Secrets;
use crate::node::tasks::Tasks;
use crate::partition::Partitions;
use crate::publication::Publication;
use crate::reading::Reading;
use crate::topics::Topics;

/// Address at which nobody listens.
const NOWHERE: &str = "127.0.0.1:1";
/// Pause between two looks at what the node asks.
pub(super) const LOOK: Duration = Duration::from_millis(1);
/// Id of the topic. Every number of nodes up to four divides it, so that the first of them leads its first segment.
const TOPIC: u128 = 12;
/// This node's process; the one before it was another.
const PROCESS: u128 = 2;

/// Node 1 of a cluster of which no other node runs.
pub(super) struct TestNode {
    pub(super) topics: Arc<Topics>,
    publication: Publication,
    metadata: Mutex<Metadata>,
    _directory: tempfile::TempDir,
}

impl TestNode {
    /// Starts node 1 of a cluster of `nodes` nodes, with topic `t` of one partition, whose first segment node 1 leads.
    pub(super) fn start(nodes: u32, replication: Replication, options: serde_json::Value) -> Arc<Self> {
        Self::start_as(nodes, replication, options, ProcessId::from_u128(PROCESS))
    }

    /// Starts the only node of a cluster; an earlier process of it was to lead the topic's first segment, and is no more.
    pub(super) fn start_after_a_restart() -> Arc<Self> {
        Self::start_as(1, Replication::single(), json!({}), ProcessId::from_u128(PROCESS - 1))
    }

    fn start_as(
        nodes: u32,
        replication: Replication,
        options: serde_json::Value,
        leader: ProcessId,
    ) -> Arc<Self> {
        drop(tracing_subscriber::fmt().with_test_writer().with_max_level(tracing::Level::DEBUG).try_init());
        let directory = tempfile::tempdir().unwrap();
        let cluster_id = Uuid::from_u128(1);
        let process = ProcessId::from_u128(PROCESS);
        let mut config = json!({
            "data_dir": directory.path(), "cluster_id": cluster_id, "node_id": 1, "disk": DiskId::from_u128(1),
            "segment_age_ms_min": 0,
            "process": process,
            // Nothing waits for the disk, whose time is not that of these tests.
            "fsync": "never",
        });
        config.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        let config = Config::parse(&config.to_string()).unwrap();
        let store = Store::open(directory.path().join("log"), config.store_options().unwrap()).unwrap();
        let metrics = Arc::new(Metrics::new());
        let table = CopyTable::load(&config, store.clone()).unwrap();
        let tasks = Tasks::new(Handle::current(), metrics.clone());
        let cluster = Cluster::new(config, Secrets::open(None).unwrap(), metrics.clone(), tasks);
        let bucket = Arc::new(Bucket::new(store, 1, metrics));
        let copies = Arc::new(Copies::new(Arc::new(cluster), bucket, table, LeftLogs::default()));
        let partitions = Arc::new(Partitions::new(copies));
        let publication = Publication::new(partitions.clone());
        let topics = Arc::new(Topics::new(Arc::new(Reading::new(partitions))));
        let node = Self { topics, publication, metadata: Mutex::default(), _directory: directory };

        node.propose(Command::Bootstrap { cluster_id, replication }).unwrap();
        node.register(1, leader);
        (2..=nodes).for_each(|id| node.register(id, process));
        node.propose(Command::RaiseLevel { level: walrus_metadata::LEVEL }).unwrap();
        let create = Request::CreateTopic {
            org: "default".to_owned(),
            name: "t".to_owned(),
            partitions: 1,
            internal: false,
            config: std::collections::BTreeMap::new(),
        };
        node.carry_out(&create).unwrap();
        if leader != process {
            node.register(1, process);
        }
        Arc::new(node)
    }

    fn register(&self, id: u32, process: ProcessId) {
        let address = || NOWHERE.to_owned();
        let node = Command::RegisterNode {
            wanted: Some(NodeId(id)),
            disk: DiskId::from_u128(id.into()),
            process,
            raft_address: address(),
            peer_address: address(),
            text_address: address(),
            grpc_address: address(),
            http_address: address(),
            admin_address: address(),
            listeners: Vec::new(),
            name: String::new(),
            zone: String::new(),
            level: walrus_metadata::LEVEL,
        };
        self.propose(node).unwrap();
        let up = Command::SetNodeState { node: NodeId(id), process, state: NodeState::Up };
        self.propose(up).unwrap();
    }

    /// Changes the metadata, and has the node hear of it.
    pub(super) fn propose(&self, command: Command) -> Result<(), CommandRejection> {
        self.apply(&Envelope { v: 1, id: Uuid::new_v4(), at_ms: 0, expect: None, command })
    }

    fn apply(&self, envelope: &Envelope) -> Result<(), CommandRejection> {
        let mut metadata = self.metadata.lock();
        let outcome = apply(&mut metadata, envelope);
        self.publication.publish(&Arc::new(metadata.clone()));
        outcome.map(drop)
    }

    /// Carries a request out, as the metadata store does.
    pub(super) fn carry_out(&self, request: &Request) -> Result<Response, RequestError> {
        let planned = {
            let metadata = self.metadata.lock();
            let everybody = Present::only(metadata.nodes.keys().copied());
            let mut next = TOPIC + (1_000 * metadata.version) as u128; // no command takes so many
            if metadata.topics.is_empty() {
                next = TOPIC;
            }
            plan(&metadata, &everybody, request, || {
                next += 1;
                Uuid::from_u128(next - 1)
            })?
        };
        let Plan::Propose(proposal) = planned else { return Ok(Response::Done) };
        match proposal.conclude(self.apply(&proposal.envelope(Uuid::new_v4(), 0))) {
            Conclusion::Answered(answer) => answer,
            Conclusion::Stale(rejected) => panic!("nobody else changes the metadata: {rejected}"),
        }
    }

    /// The next request of the node, and the id under which it is answered.
    pub(super) async fn next_request(&self) -> (u64, Request) {
        loop {
            if let Some((id, json)) = self.cluster().control().poll(1, Duration::ZERO).pop() {
                return (id, serde_json::from_str(&json).unwrap());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    pub(super) fn answer(&self, id: u64, answer: &Result<Response, RequestError>) {
        self.cluster().control().complete(id, &serde_json::to_string(answer).unwrap()).unwrap();
    }

    /// Carries out whatever the node asks for, until the test ends.
    pub(super) fn serve(self: &Arc<Self>) {
        let node = self.clone();
        tokio::spawn(async move {
            loop {
                let (id, request) = node.next_request().await;
                let answer = node.carry_out(&request);
                node.answer(id, &answer);
            }
        });
    }

    pub(super) fn cluster(&self) -> &Arc<Cluster> {
        self.topics.cluster()
    }

    pub(super) fn copies(&self) -> &Arc<Copies> {
        self.topics.copies()
    }

    /// All segments of the topic, as the metadata have them.
    pub(super) fn segments(&self) -> Vec<Segment> {
        self.metadata.lock().topics[&TopicId::from_u128(TOPIC)].partitions[0].segments.clone()
    }

    /// The last segment of the topic.
    pub(super) fn last(&self) -> Segment {
        self.segments().pop().unwrap()
    }
}

/// Partition 0 of the topic.
pub(super) fn place() -> PartitionRef {
    PartitionRef::parse("t", 0).unwrap()
}

/// A batch of one record.
pub(super) fn batch(value: &str) -> Bytes {
    let mut bytes = Vec::new();
    BatchBuilder::new().push(None, Some(value.as_bytes()), 1, &[]).build(&mut bytes).unwrap();
    bytes.into()
}

/// Three copies, two of which acknowledge.
pub(super) fn two_of_three() -> Replication {
    Replication { factor: 3, write_quorum: 2 }
}
