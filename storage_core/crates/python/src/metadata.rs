//! `Metadata`: the cluster's state, and the pure function that changes it.

use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use uuid::Uuid;
use walrus_metadata::{Envelope, LostTopic, Rejected, Remains};
use walrus_model::{AttemptId, DiskId, Epoch, NodeId, SegmentId, TopicId};

use crate::error::Result;
use crate::json;
use crate::presence::Present;

/// The cluster's state, and the pure function that changes it.
///
/// A copy costs a pointer, so does publishing it to a `DataPlane`.
#[pyclass(frozen, module = "walrus_core")]
pub(crate) struct Metadata {
    state: Mutex<Arc<walrus_metadata::Metadata>>,
    /// Up to which level commands are known.
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

    /// Grows by one with every command that changed something.
    #[getter]
    fn version(&self) -> u64 {
        self.current().version
    }

    /// A state of its own, equal now.
    fn copy(&self) -> Self {
        Self::new(self.current(), self.level)
    }

    /// The same state as that of another cluster, by the UUID of that: for a forced recovery.
    fn continued_as(&self, cluster_id: &str) -> PyResult<Self> {
        let id = Uuid::parse_str(cluster_id);
        let id = id.map_err(|problem| pyo3::exceptions::PyValueError::new_err(problem.to_string()))?;
        Ok(Self::new(Arc::new(self.current().continued_as(id)), self.level))
    }

    /// The level of commands that all members know, if it is above the cluster's.
    fn reachable_level(&self) -> Option<u32> {
        self.current().reachable_level()
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

    /// Per node id (as text) the segments `led`, `held` and of these `filling` (no whole copy yet); how many
    /// segments are `under_replicated`; how many nodes (`spare_nodes`, None where nothing is stored) may stop with
    /// every segment still written and read; the `replication` (`factor`, `write_quorum`) of new segments.
    ///
    /// A replica, or a verified copy, counts where its node is in `alive` and still has the disk.
    fn census<'py>(&self, py: Python<'py>, alive: Vec<u32>) -> PyResult<Bound<'py, PyAny>> {
        let state = self.current();
        let alive = alive.into_iter().map(NodeId).collect();
        let census = py.detach(|| walrus_metadata::census(&state, &alive));
        json::to_python(py, &census)
    }

    /// What would lack its quorum if a node stopped, the others of `alive` being those that serve.
    ///
    /// Replicas of open segments count on the nodes of `current`: they have all that was acknowledged.
    ///
    /// `open_without_quorum`, `sealed_without_copy`, `led`: numbers of segments; `topics`: some of theirs.
    #[pyo3(signature = (node, *, alive, current))]
    fn stopping<'py>(
        &self,
        py: Python<'py>,
        node: u32,
        alive: Vec<u32>,
        current: Vec<u32>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let state = self.current();
        let [alive, current] = [alive, current].map(|nodes| nodes.into_iter().map(NodeId).collect());
        let stopping = py.detach(|| walrus_metadata::stopping(&state, NodeId(node), &alive, &current));
        json::to_python(py, &stopping)
    }

    /// `changes` of copies to propose now as `set_copies`, the most urgent first; `progress`: how far things are.
    ///
    /// `progress`: sealed segments `under_replicated` and of these `without_copy`, copies `moving` and `damaged`.
    fn upkeep<'py>(&self, py: Python<'py>, present: &Present) -> PyResult<Bound<'py, PyAny>> {
        let state = self.current();
        let upkeep = py.detach(|| walrus_metadata::upkeep(&state, &present.of));
        json::to_python(py, &upkeep)
    }

    /// Segments in order, one dict for each: of one topic (`organisation/name`), or that lack copies, if wanted.
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
        let wanted = walrus_metadata::Wanted { topic, under_replicated, limit };
        let lines = py.detach(|| walrus_metadata::segments(&state, &wanted, &alive));
        json::to_python(py, &lines)
    }

    /// Topics that this state does not name, put together from the `DataPlane.remains` of all disks, as JSON.
    ///
    /// For each `topic`, `facts` and `partitions` (`index`, `first`, `begins`, `ends`, `bytes`, `problem`).
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
    /// This version does not understand it: `Malformed`, `UnsupportedVersion`, `UnsupportedLevel`. A member may not:
    /// `LevelNotReached`.
    fn check(&self, envelope: &[u8]) -> Result<()> {
        let envelope = Envelope::from_json(envelope, self.level)?;
        Ok(self.current().check_level(&envelope.command)?)
    }

    /// Descriptor of the first segment of a partition of a new topic; `None` when no node is healthy.
    fn first_descriptor<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        partition: u32,
        uuid: &str,
        present: &Present,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (topic, uuid) = (TopicId(parse_uuid(topic)?), parse_uuid(uuid)?);
        walrus_metadata::first_descriptor(&self.current(), topic, partition, SegmentId(uuid), &present.of)
            .map(|descriptor| json::to_python(py, &descriptor))
            .transpose()
    }

    /// Descriptor of the segment that follows the partition's last one, not led by a node of `avoid`.
    ///
    /// `None` when no healthy node is left or the partition does not exist.
    fn successor<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        partition: u32,
        uuid: &str,
        avoid: Vec<u32>,
        present: &Present,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (topic, segment) = (TopicId(parse_uuid(topic)?), SegmentId(parse_uuid(uuid)?));
        let avoid: Vec<NodeId> = avoid.into_iter().map(NodeId).collect();
        walrus_metadata::successor(&self.current(), topic, partition, segment, &avoid, &present.of)
            .map(|descriptor| json::to_python(py, &descriptor))
            .transpose()
    }

    /// `ballot` and `successor` of the next attempt to decide where the partition's last segment ends.
    ///
    /// Its epoch is fresh, and above `above`: the highest one that a refused fence has named, or 0. `attempt` and
    /// `successor` are new UUIDs. `None` as for `successor`.
    #[pyo3(signature = (topic, partition, *, attempt, successor, above, avoid, present))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    fn recovery<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        partition: u32,
        attempt: &str,
        successor: &str,
        above: u32,
        avoid: Vec<u32>,
        present: &Present,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let place = (TopicId(parse_uuid(topic)?), partition);
        let ids = (AttemptId(parse_uuid(attempt)?), SegmentId(parse_uuid(successor)?));
        let avoid: Vec<NodeId> = avoid.into_iter().map(NodeId).collect();
        walrus_metadata::recovery(&self.current(), place, ids, Epoch(above), &avoid, &present.of)
            .map(|attempt| json::to_python(py, &attempt))
            .transpose()
    }
}

/// A cluster that uses commands of a level that is not known here must not be followed any further.
fn check_known(state: &walrus_metadata::Metadata, level: u32) -> std::result::Result<(), Rejected> {
    if state.level > level {
        return Err(Rejected::UnsupportedLevel { got: state.level, supported: level });
    }
    Ok(())
}

fn parse_json<T: serde::de::DeserializeOwned>(text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn parse_uuid(text: &str) -> PyResult<Uuid> {
    Uuid::try_parse(text).map_err(|error| PyValueError::new_err(format!("{text:?} is not a UUID: {error}")))
}
