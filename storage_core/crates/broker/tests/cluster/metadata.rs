//! The metadata of the cluster, shared by its nodes: one lock orders the commands, as Raft does elsewhere, and requests are
//! answered as the control plane answers them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use uuid::Uuid;
use walrus_broker::DataPlane;
use walrus_metadata::{
    Answer, Command, Conclusion, Envelope, Metadata, Plan, Present, Request, RequestError, Response, apply,
    plan,
};
use walrus_model::NodeId;

use crate::links::Links;

type Outcome = Result<Response, RequestError>;

/// The metadata that all nodes of a test share, and the data planes that learn of their changes.
pub(crate) struct Shared {
    pub(crate) cluster_id: Uuid,
    pub(crate) metadata: Mutex<Metadata>,
    pub(crate) planes: Mutex<Vec<Option<Arc<DataPlane>>>>,
    /// Whether the metadata store answers nothing.
    pub(crate) away: AtomicBool,
    /// Nodes whose leases have lapsed.
    pub(crate) lapsed: Mutex<Vec<u32>>,
    /// Nodes that hear of nothing new.
    pub(crate) behind: Mutex<Vec<u32>>,
    /// Nodes that are behind and hear of all once they ask for anything.
    pub(crate) late: Mutex<Vec<u32>>,
    /// Nodes that the metadata store does not answer.
    pub(crate) unheard: Mutex<Vec<u32>>,
    /// Requests that were in vain while the store was away or did not hear a node: the node, and the request's kind.
    pub(crate) refused: Mutex<Vec<(u32, String)>>,
    /// The relays between the nodes, where a test wants to interfere.
    pub(crate) links: Option<Links>,
}

impl Shared {
    /// Applies a command and publishes what came of it.
    pub(crate) fn propose(&self, command: Command) -> Result<Answer, walrus_metadata::CommandRejection> {
        self.apply(&Envelope { v: 1, id: Uuid::new_v4(), at_ms: now_ms(), expect: None, command })
    }

    fn apply(&self, envelope: &Envelope) -> Result<Answer, walrus_metadata::CommandRejection> {
        let (snapshot, outcome) = {
            let mut metadata = self.metadata.lock();
            let outcome = apply(&mut metadata, envelope);
            (metadata.clone(), outcome)
        };
        self.publish(&snapshot);
        outcome.map(|applied| applied.answer)
    }

    /// Renews the lease of a node, for the process that is listed.
    pub(crate) fn renew_lease(&self, id: u32) {
        let node = NodeId(id);
        let process = self.metadata.lock().nodes[&node].process;
        let asked = clock_gettime(ClockId::Boottime);
        let asked_boottime_ms = u64::try_from(Duration::try_from(asked).unwrap().as_millis()).unwrap();
        self.propose(Command::RenewLease { node, process, asked_boottime_ms, disk_bytes: 0 }).unwrap();
    }

    /// Shows the metadata to all nodes that are not behind.
    pub(crate) fn publish(&self, metadata: &Metadata) {
        let behind = self.behind.lock().clone();
        let nodes = 1..=u32::try_from(self.planes.lock().len()).unwrap();
        nodes.filter(|id| !behind.contains(id)).for_each(|id| self.show(id, metadata));
    }

    /// Shows the metadata to one node.
    fn show(&self, id: u32, metadata: &Metadata) {
        let plane = self.planes.lock()[id as usize - 1].clone();
        if let Some(plane) = plane {
            let links = self.links.as_ref();
            plane.publish(
                links.map_or_else(|| Arc::new(metadata.clone()), |links| shown(metadata, links, id)),
            );
        }
    }

    /// Answers an event as the control plane does. A node that is late has heard of all metadata when it is answered.
    pub(crate) fn handle(&self, from: u32, event: &Value) -> Value {
        let answer = serde_json::to_value(self.carry_out(from, event)).unwrap();
        if self.late.lock().contains(&from) {
            let metadata = self.metadata.lock().clone();
            self.show(from, &metadata);
        }
        answer
    }

    fn carry_out(&self, from: u32, event: &Value) -> Outcome {
        if self.away.load(Ordering::Relaxed) || self.unheard.lock().contains(&from) {
            self.refused.lock().push((from, event["kind"].as_str().unwrap().to_owned()));
            return Err(RequestError::unavailable("it is away"));
        }
        let mut request: Request = serde_json::from_value(event.clone()).unwrap();
        if let Request::BeginRoll { avoid, .. } | Request::BeginRecovery { avoid, .. } = &mut request {
            avoid.extend(self.lapsed.lock().iter().map(|id| NodeId(*id)));
        }
        loop {
            let planned = {
                let metadata = self.metadata.lock();
                plan(&metadata, &everybody(&metadata), &request, Uuid::new_v4)?
            };
            let Plan::Propose(proposal) = planned else { return self.barrier(from) };
            let outcome = self.apply(&proposal.envelope(Uuid::new_v4(), now_ms())).map(drop);
            if let Conclusion::Answered(answer) = proposal.conclude(outcome) {
                return answer;
            }
        }
    }

    /// Answers a request that changes nothing, such as a barrier; a node that hears of nothing waits for that in vain.
    fn barrier(&self, from: u32) -> Outcome {
        let is_deaf = self.behind.lock().contains(&from) && !self.late.lock().contains(&from);
        if is_deaf { Err(RequestError::unavailable("it hears of nothing")) } else { Ok(Response::Done) }
    }
}

/// All nodes as present: no lease lapses by itself here.
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

pub(crate) fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}
