//! `Metadata`: the cluster's state, and the pure function that changes it.

use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use uuid::Uuid;
use walrus_metadata::{
    CommandRejection, Conclusion, Envelope, LostTopic, NodeLimits, Remains, Request, RequestError, Response,
    WantedTopic,
};
use walrus_model::{DiskId, NodeId, SegmentId};

use crate::error::Result;
use crate::json;
use crate::present::Present;

/// The cluster's state, and the pure function that changes it.
///
/// A copy costs a pointer, so does publishing it to a `DataPlane`.
#[pyclass(frozen, module = "walrus_core")]
pub(crate) struct Metadata {
    state: Mutex<Arc<walrus_metadata::Metadata>>,
    /// Highest level of commands that are known.
    level: u32,
}

impl Metadata {
    fn new(state: Arc<walrus_metadata::Metadata>, level: u32) -> Self {
        Self { state: Mutex::new(state), level }
    }

    /// The state as it is now; later commands do not change it.
    pub(crate) fn current(&self) -> Arc<walrus_metadata::Metadata> {
        Arc::clone(&self.state.lock().expect("a panic in apply leaves an unknown state"))
    }
}

#[pymethods]
impl Metadata {
    /// The highest level of commands that this version knows.
    #[classattr]
    const LEVEL: u32 = walrus_metadata::LEVEL;

    #[new]
    #[pyo3(signature = (level = walrus_metadata::LEVEL))]
    fn empty(level: u32) -> Self {
        Self::new(Arc::default(), level)
    }

    /// Reads what `snapshot` gave. Raises `CorruptionError`; where a newer Walrus wrote it `UnsupportedFormat`, or
    /// `Rejected` where its cluster is at a higher level.
    #[staticmethod]
    #[pyo3(signature = (snapshot, level = walrus_metadata::LEVEL))]
    fn restore(snapshot: &[u8], level: u32) -> Result<Self> {
        let state = walrus_metadata::Metadata::from_snapshot(snapshot)?;
        check_known(&state, level)?;
        Ok(Self::new(Arc::new(state), level))
    }

    /// The whole state as versioned JSON.
    fn snapshot<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let state = self.current();
        PyBytes::new(py, &py.detach(|| state.to_snapshot()))
    }

    /// Applies one command, given as the JSON of its envelope; gives JSON with `version` and `answer`.
    ///
    /// Raises `Rejected` with the reason and facts of the refusal. A command whose id is remembered changes nothing
    /// and is answered, or refused, as it was the first time.
    fn apply<'py>(&self, py: Python<'py>, envelope: &[u8]) -> Result<Bound<'py, PyBytes>> {
        let envelope = Envelope::from_json(envelope, self.level)?;
        let applied = {
            let mut state = self.state.lock().expect("a panic in apply leaves an unknown state");
            let applied = walrus_metadata::apply(Arc::make_mut(&mut state), &envelope)?;
            check_known(&state, self.level)?;
            applied
        };
        let json = serde_json::to_vec(&applied).expect("an answer has only keys that are strings in JSON");
        Ok(PyBytes::new(py, &json))
    }

    /// Version of the state; it grows by one with every command that changed something.
    #[getter]
    fn version(&self) -> u64 {
        self.current().version
    }

    /// The level of commands that the cluster has reached; 0 until it is founded.
    #[getter]
    fn level(&self) -> u32 {
        self.current().level
    }

    /// Makes an independent state that is equal now.
    fn copy(&self) -> Self {
        Self::new(self.current(), self.level)
    }

    /// Makes the same state as that of another cluster, named by its UUID: for a forced recovery.
    fn continued_as(&self, cluster_id: &str) -> PyResult<Self> {
        let id = Uuid::parse_str(cluster_id);
        let id = id.map_err(|problem| pyo3::exceptions::PyValueError::new_err(problem.to_string()))?;
        Ok(Self::new(Arc::new(self.current().continued_as(id)), self.level))
    }

    /// The UUIDs that the cluster had before forced recoveries, the oldest first.
    #[getter]
    fn former_ids(&self) -> Vec<String> {
        self.current().former_ids.iter().map(ToString::to_string).collect()
    }

    /// The level of commands that all members know, if it is above the cluster's.
    fn reachable_level(&self) -> Option<u32> {
        self.current().reachable_level()
    }

    /// Whether commands about the placement of topics, and registrations with named listeners, may be proposed.
    fn knows_placement(&self) -> bool {
        self.current().knows_placement()
    }

    /// Whether renewals of leases may say how large a node's disk is.
    fn knows_disk_sizes(&self) -> bool {
        self.current().knows_disk_sizes()
    }

    /// Whether registrations may say in which zone a node is.
    fn knows_zones(&self) -> bool {
        self.current().knows_zones()
    }

    /// The organisations by name, a dict for each: `name`, `limits`, `topics`, `partitions`, `version`.
    fn organisations<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &walrus_metadata::organisations(&self.current()))
    }

    /// The state as dicts and lists, in the shape of its JSON.
    fn view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &*self.current())
    }

    /// The nodes by id, in the shape of their JSON.
    fn nodes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.current().nodes.values().collect::<Vec<_>>())
    }

    /// Disks that were taken out of the cluster for good.
    fn gone_disks(&self) -> Vec<String> {
        self.current().gone_disks.iter().map(DiskId::to_string).collect()
    }

    /// The cluster-wide settings: `version` of their last change (0: none), and `entries` by key.
    fn config<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.current().config)
    }

    /// Counts per node id (as text) the segments `led`, `held` and of these `filling` (no whole copy yet), and the
    /// `bytes` of sealed ones held; how many segments are `under_replicated`; how many nodes (`spare_nodes`, None where
    /// nothing is stored) may stop with every segment still written and read; the `replication` (`factor`,
    /// `write_quorum`) of new segments; the most copies that any segment shall have (`copies_needed`).
    ///
    /// A replica, or a verified copy, counts where its node is in `alive` and still has the disk.
    fn census<'py>(&self, py: Python<'py>, alive: Vec<u32>) -> PyResult<Bound<'py, PyAny>> {
        let state = self.current();
        let alive = alive.into_iter().map(NodeId).collect();
        let census = py.detach(|| walrus_metadata::census(&state, &alive));
        json::to_python(py, &census)
    }

    /// Tells what would lack its quorum if a node stopped and the others of `alive` were those that serve.
    ///
    /// Replicas of open segments count on the nodes of `current`: they have all that was acknowledged.
    ///
    /// Gives the numbers of segments `open_without_quorum`, `sealed_without_copy` and `led`; `topics`: some of theirs.
    #[pyo3(signature = (node, *, alive, current))]
    fn stop_impact<'py>(
        &self,
        py: Python<'py>,
        node: u32,
        alive: Vec<u32>,
        current: Vec<u32>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let state = self.current();
        let [alive, current] = [alive, current].map(|nodes| nodes.into_iter().map(NodeId).collect());
        let impact = py.detach(|| walrus_metadata::stop_impact(&state, NodeId(node), &alive, &current));
        json::to_python(py, &impact)
    }

    /// Gives `changes` of copies to propose now as `set_copies`, the most urgent first, and the `progress`.
    ///
    /// It counts sealed segments `under_replicated`, of these `without_copy`, and `lost`; copies `moving`, `damaged`.
    fn upkeep<'py>(&self, py: Python<'py>, present: &Present) -> PyResult<Bound<'py, PyAny>> {
        let state = self.current();
        let upkeep = py.detach(|| walrus_metadata::upkeep(&state, &present.of));
        json::to_python(py, &upkeep)
    }

    /// Lists up to `limit` partitions that have something to let go by their retention, to propose as `expire`.
    fn past_retention<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Bound<'py, PyAny>> {
        let state = self.current();
        let past = py.detach(|| walrus_metadata::partitions_past_retention(&state, limit));
        json::to_python(py, &past)
    }

    /// Lists segments in order, a dict for each: of one `organisation/name`, or that lack copies, if wanted.
    #[pyo3(signature = (alive, *, topic, under_replicated, limit))]
    fn segments<'py>(
        &self,
        py: Python<'py>,
        alive: Vec<u32>,
        topic: Option<String>,
        under_replicated: bool,
        limit: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let state = self.current();
        let alive = alive.into_iter().map(NodeId).collect();
        let filter = walrus_metadata::SegmentFilter { topic, under_replicated, limit };
        let lines = py.detach(|| walrus_metadata::segments(&state, &filter, &alive));
        json::to_python(py, &lines)
    }

    /// Compares topics as they are wanted (JSON, a list of `org`, `name`, `config`) with what there is, in order.
    ///
    /// `refused` says why no topic can have those settings; `found`, or None, is the topic: `topic` (its UUID),
    /// `partitions`, `version`, `factor`, `write_quorum`, `differences`, `settings`, `leaders`, `sealed_bytes`.
    /// `node_json` are options of the node: `segment_{entries,bytes,age_ms}_max`, `fsync`. Raises `ValueError`.
    fn compare_topics<'py>(
        &self,
        py: Python<'py>,
        wanted_json: &str,
        node_json: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (wanted, node) =
            (parse_json::<Vec<WantedTopic>>(wanted_json)?, parse_json::<NodeLimits>(node_json)?);
        let state = self.current();
        let compared = py.detach(|| walrus_metadata::compare_topics(&state, &node, &wanted));
        json::to_python(py, &compared)
    }

    /// Lists topics that this state does not name, put together from the `DataPlane.remains` of all disks, as JSON.
    ///
    /// Gives for each `topic`, `facts` and `partitions` (`index`, `first`, `begins`, `ends`, `bytes`, `ambiguity`).
    fn lost_topics<'py>(&self, py: Python<'py>, remains_json: &str) -> PyResult<Bound<'py, PyAny>> {
        let lost = walrus_metadata::lost_topics(&self.current(), &parse_json::<Vec<Remains>>(remains_json)?);
        json::to_python(py, &lost)
    }

    /// The command that names one of `lost_topics` (as JSON) again, under *name* if one is given.
    ///
    /// Raises `ValueError` that says why it cannot be: no name is known, or nobody can say which segment is the first.
    fn recover_topic<'py>(
        &self,
        py: Python<'py>,
        lost_json: &str,
        name: Option<&str>,
        present: &Present,
    ) -> PyResult<Bound<'py, PyAny>> {
        let lost: LostTopic = parse_json(lost_json)?;
        let command = walrus_metadata::recover_topic(
            &self.current(),
            &lost,
            name,
            || SegmentId(Uuid::new_v4()),
            &present.of,
        )
        .map_err(|problem| PyValueError::new_err(problem.to_string()))?;
        json::to_python(py, &command)
    }

    /// Raises `Rejected` where the command must not be proposed.
    ///
    /// This version may not understand it: `Malformed`, `UnsupportedVersion`, `UnsupportedLevel`; or a member may not:
    /// `LevelNotReached`.
    fn check(&self, envelope: &[u8]) -> Result<()> {
        let envelope = Envelope::from_json(envelope, self.level)?;
        Ok(self.current().check_level(&envelope.command)?)
    }

    /// Plans how a request of the data plane, as `DataPlane.poll_events` gives it, is carried out from this state.
    ///
    /// Raises `ValueError` for a text that is no request.
    fn plan(&self, py: Python<'_>, request_json: &str, present: &Present) -> PyResult<Plan> {
        let (request, state) = (parse_json::<Request>(request_json)?, self.current());
        let of = py.detach(|| walrus_metadata::plan(&state, &present.of, &request, Uuid::new_v4));
        Ok(Plan { of })
    }
}

/// The way in which a request of the data plane is carried out.
///
/// It is a barrier, or the proposal of `envelope`; `answer` then gives what `DataPlane.complete` takes.
#[pyclass(frozen, module = "walrus_core")]
pub(crate) struct Plan {
    of: std::result::Result<walrus_metadata::Plan, RequestError>,
}

#[pymethods]
impl Plan {
    /// Whether it is carried out by waiting until this node knows all that is committed.
    #[getter]
    fn is_barrier(&self) -> bool {
        matches!(self.of, Ok(walrus_metadata::Plan::Barrier))
    }

    /// The command to propose, under a fresh id, at that time; `None` for a barrier.
    fn envelope<'py>(&self, py: Python<'py>, at_ms: u64) -> Option<Bound<'py, PyBytes>> {
        let Ok(walrus_metadata::Plan::Propose(proposal)) = &self.of else { return None };
        let json = serde_json::to_vec(&proposal.envelope(Uuid::new_v4(), at_ms))
            .expect("a command has only keys that are strings in JSON");
        Some(PyBytes::new(py, &json))
    }

    /// The answer to the request, once the command was applied, or rejected with these facts as JSON.
    ///
    /// `None` means that the state had moved on: plan it anew. Raises `ValueError` for a text that is no rejection.
    #[pyo3(signature = (rejected_json = None))]
    fn answer(&self, rejected_json: Option<&str>) -> PyResult<Option<String>> {
        Ok(self.concluded(rejected_json)?.map(|answered| answer_json(&answered)))
    }

    /// The same for a caller that is no data plane: the response in the shape of its JSON.
    ///
    /// `None` means that the state had moved on: plan it anew. Raises `Rejected`, `RetryableError` where the same
    /// request may be taken a moment later, `ValueError` for a text that is no rejection.
    #[pyo3(signature = (rejected_json = None))]
    fn response<'py>(
        &self,
        py: Python<'py>,
        rejected_json: Option<&str>,
    ) -> Result<Option<Bound<'py, PyAny>>> {
        let Some(answered) = self.concluded(rejected_json)? else { return Ok(None) };
        Ok(Some(json::to_python(py, &answered?)?))
    }

    /// The answer to a request that was not carried out, as far as is known; it may be asked again.
    #[staticmethod]
    fn unavailable(why: String) -> String {
        answer_json(&Err(RequestError::Unavailable { why }))
    }
}

impl Plan {
    /// What came of the request; `None` where the state had moved on.
    fn concluded(
        &self,
        rejected_json: Option<&str>,
    ) -> PyResult<Option<std::result::Result<Response, RequestError>>> {
        let outcome = match rejected_json {
            Some(json) => Err(parse_json::<CommandRejection>(json)?),
            None => Ok(()),
        };
        Ok(Some(match (&self.of, outcome) {
            (Err(refused), _) => Err(refused.clone()),
            (Ok(walrus_metadata::Plan::Barrier), Ok(())) => Ok(Response::Done),
            (Ok(walrus_metadata::Plan::Barrier), Err(rejected)) => Err(RequestError::Rejected(rejected)),
            (Ok(walrus_metadata::Plan::Propose(proposal)), outcome) => match proposal.conclude(outcome) {
                Conclusion::Answered(answer) => answer,
                Conclusion::Stale(_) => return Ok(None),
            },
        }))
    }
}

fn answer_json(answer: &std::result::Result<Response, RequestError>) -> String {
    serde_json::to_string(answer).expect("an answer has only keys that are strings in JSON")
}

/// A cluster that uses commands of a level that is not known here must not be followed any further.
fn check_known(state: &walrus_metadata::Metadata, level: u32) -> std::result::Result<(), CommandRejection> {
    if state.level > level {
        return Err(CommandRejection::UnsupportedLevel { got: state.level, supported: level });
    }
    Ok(())
}

fn parse_json<T: serde::de::DeserializeOwned>(text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(|error| PyValueError::new_err(error.to_string()))
}
