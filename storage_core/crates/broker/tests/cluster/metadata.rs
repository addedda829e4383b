//! The metadata of the cluster, shared by its nodes: one lock orders the commands, as Raft does elsewhere, and answers as the control plane does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde_json::{Value, json};
use uuid::Uuid;
use walrus_broker::DataPlane;
use walrus_metadata::{
    Answer, Attempt, Command, Envelope, Metadata, Present, apply, first_descriptor, recovery, successor,
};
use walrus_model::{AttemptId, Epoch, NodeId, SegmentId, TopicId};

use crate::links::Links;

/// The metadata that all nodes of a test share, and the data planes that learn of their changes.
pub(crate) struct Shared {
    pub(crate) cluster_id: Uuid,
    pub(crate) metadata: Mutex<Metadata>,
    pub(crate) planes: Mutex<Vec<Option<Arc<DataPlane>>>>,
    /// The metadata store answers nothing.
    pub(crate) away: AtomicBool,
    /// Nodes whose leases have lapsed.
    pub(crate) lapsed: Mutex<Vec<u32>>,
    /// Nodes that hear of nothing new.
    pub(crate) behind: Mutex<Vec<u32>>,
    /// Those of them that hear of all once they ask for anything.
    pub(crate) late: Mutex<Vec<u32>>,
    /// Nodes that the metadata store does not answer.
    pub(crate) unheard: Mutex<Vec<u32>>,
    /// What nodes asked for in vain while it was away or did not hear them.
    pub(crate) refused: Mutex<Vec<(u32, String)>>,
    /// Between the nodes, where a test wants to interfere.
    pub(crate) links: Option<Links>,
}

impl Shared {
    /// Applies a command and publishes what came of it.
    pub(crate) fn propose(&self, command: Command) -> Result<Answer, walrus_metadata::Rejected> {
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
    pub(crate) fn publish(&self, metadata: &Metadata) {
        let behind = self.behind.lock().clone();
        let nodes = 1..=u32::try_from(self.planes.lock().len()).unwrap();
        nodes.filter(|id| !behind.contains(id)).for_each(|id| self.show(id, metadata));
    }

    /// Tells one node.
    fn show(&self, id: u32, metadata: &Metadata) {
        let plane = self.planes.lock()[id as usize - 1].clone();
        if let Some(plane) = plane {
            let links = self.links.as_ref();
            plane.publish(
                links.map_or_else(|| Arc::new(metadata.clone()), |links| shown(metadata, links, id)),
            );
        }
    }

    /// What the control plane does with an event. A node that is late knows by the answer what it was told.
    pub(crate) fn handle(&self, from: u32, event: &Value) -> Value {
        let answer = self.carry_out(from, event);
        if self.late.lock().contains(&from) {
            let metadata = self.metadata.lock().clone();
            self.show(from, &metadata);
        }
        answer
    }

    fn carry_out(&self, from: u32, event: &Value) -> Value {
        if self.away.load(Ordering::Relaxed) || self.unheard.lock().contains(&from) {
            self.refused.lock().push((from, event["kind"].as_str().unwrap().to_owned()));
            return refusal("Unavailable", true);
        }
        let uuid = |name: &str| serde_json::from_value::<Uuid>(event[name].clone()).unwrap();
        let topic = || TopicId(uuid("topic"));
        let partition = || u32::try_from(event["partition"].as_u64().unwrap()).unwrap();
        let command = match event["kind"].as_str().unwrap() {
            "barrier" => return self.barrier(from),
            "create_topic" => return self.create_topic(event),
            "begin_roll" => {
                let avoided = event["avoid"].as_array().unwrap().iter();
                let mut avoid: Vec<NodeId> =
                    avoided.map(|id| NodeId(u32::try_from(id.as_u64().unwrap()).unwrap())).collect();
                avoid.extend(self.lapsed.lock().iter().map(|id| NodeId(*id)));
                let (topic, partition, segment) = (topic(), partition(), uuid("segment"));
                let chosen = {
                    let metadata = self.metadata.lock();
                    successor(
                        &metadata,
                        topic,
                        partition,
                        SegmentId(Uuid::new_v4()),
                        &avoid,
                        &everybody(&metadata),
                    )
                };
                let Some(successor) = chosen else { return refusal("NoHealthyNode", true) };
                let command = Command::BeginRoll {
                    topic,
                    partition,
                    segment: SegmentId(segment),
                    successor: successor.clone(),
                };
                return match self.propose(command) {
                    Ok(_) => json!({"ok": {"successor": successor}}),
                    Err(rejected) => rejection(&rejected),
                };
            }
            "begin_recovery" => {
                return self.begin_recovery(event, (topic(), partition()), SegmentId(uuid("segment")));
            }
            "seal_and_open" => Command::SealAndOpen {
                topic: topic(),
                partition: partition(),
                segment: SegmentId(uuid("segment")),
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
            "node_state" => {
                let node = NodeId(from);
                let process = self.metadata.lock().nodes[&node].process;
                let state = serde_json::from_value(event["state"].clone()).unwrap();
                Command::SetNodeState { node, process, state }
            }
            other => panic!("an event of kind {other}"),
        };
        match self.propose(command) {
            Ok(_) => json!({"ok": {}}),
            Err(rejected) => rejection(&rejected),
        }
    }

    /// A node that hears of nothing waits for it in vain.
    fn barrier(&self, from: u32) -> Value {
        let is_deaf = self.behind.lock().contains(&from) && !self.late.lock().contains(&from);
        if is_deaf { refusal("Unavailable", true) } else { json!({"ok": {}}) }
    }

    fn begin_recovery(&self, event: &Value, place: (TopicId, u32), segment: SegmentId) -> Value {
        let number = |value: &Value| u32::try_from(value.as_u64().unwrap()).unwrap();
        let mut avoid: Vec<NodeId> =
            event["avoid"].as_array().unwrap().iter().map(|id| NodeId(number(id))).collect();
        avoid.extend(self.lapsed.lock().iter().map(|id| NodeId(*id)));
        let chosen = {
            let metadata = self.metadata.lock();
            let ids = (AttemptId(Uuid::new_v4()), SegmentId(Uuid::new_v4()));
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
            let first =
                |partition| first_descriptor(&metadata, id, partition, SegmentId(Uuid::new_v4()), &present);
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
pub(crate) fn everybody(metadata: &Metadata) -> Present {
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

pub(crate) fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}
