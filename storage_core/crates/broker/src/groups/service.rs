//! The service that finds the coordinator of a group and asks it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::sync::oneshot;
use walrus_groups::{
    Answer, Commit, Committed, Effect, Group, GroupName, Join, Joined, Leave, MemberView, Phase, Place,
    Refusal, Sync, Synced, Ticket, Who,
};
use walrus_owners::Term;

use super::ledger::Ledger;
use crate::cluster::leadership::Leadership;
use crate::node::error::{Error, Result};
use crate::node::locks::Lock;
use crate::node::names::{OrgName, TopicPath};
use crate::node::obstacle::Obstacle;
use crate::node::patience;
use crate::owners::{Finder, Ledger as _, Owner};
use crate::topics::Topics;

/// Number of partitions of `__groups`. A group is in the one of its name's checksum modulo this number, so it never changes.
pub(super) const PARTITIONS: u32 = 8;
/// Settings of `__groups`: a coordinator that moves costs its groups' members a search, and a takeover reads what is not trimmed.
const SETTINGS: [(&str, &str); 2] = [("walrus.leaders", "sticky"), ("segment.bytes", "33554432")];

/// Consumer groups. Cheap to clone.
#[derive(Clone)]
pub(crate) struct GroupService {
    inner: Arc<Inner>,
}

struct Inner {
    topics: Arc<Topics>,
    finder: Finder,
    owners: Vec<Arc<Owner<Ledger>>>,
    /// Whether a leader that serves no more is being replaced, by partition.
    waking: Vec<AtomicBool>,
    /// How far the groups that this node coordinates were behind when that was measured last.
    lags: Lock<BTreeMap<GroupName, u64>>,
}

/// A group, as whoever describes it sees it.
#[derive(Clone, Debug)]
pub(crate) struct GroupView {
    pub(crate) phase: Phase,
    pub(crate) protocol_type: String,
    pub(crate) protocol: String,
    pub(crate) members: Vec<MemberView>,
}

/// What became of a request that reached the coordinator.
type Told<T> = std::result::Result<T, Refusal>;

impl GroupService {
    /// Spawns nothing before the first call.
    pub(crate) fn new(topics: Arc<Topics>) -> Self {
        let path = TopicPath::internal("__groups").expect("it is of the alphabet");
        let settings = SETTINGS.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let finder = Finder::new(topics.clone(), path, PARTITIONS, settings.collect(), Ledger::nothing);
        let owners = (0..PARTITIONS).map(|partition| Arc::new(Owner::new(finder.log(partition)))).collect();
        let waking = (0..PARTITIONS).map(|_| AtomicBool::new(false)).collect();
        Self { inner: Arc::new(Inner { topics, finder, owners, waking, lags: Lock::default() }) }
    }

    /// The node that coordinates a group. Makes the topic of groups if need be. `NotLeader` while nobody does; then another node is
    /// being found.
    pub(crate) async fn coordinator(&self, name: &GroupName) -> Result<u32> {
        let partition = partition_of(name);
        let leadership = self.inner.finder.leadership(partition).await?;
        let cluster = self.inner.topics.cluster();
        let answering = cluster.answering(&cluster.routing().metadata).alive;
        let is_me = leadership.node == cluster.node_id();
        let is_there =
            if is_me { leadership.ours } else { answering.iter().any(|node| node.0 == leadership.node) };
        if is_there {
            return Ok(leadership.node);
        }
        self.wake(partition, leadership);
        Err(self.inner.finder.led_by_an_earlier_process(&leadership))
    }

    /// A member joins; answered once its generation is formed.
    pub(crate) async fn join(&self, name: &GroupName, join: Join) -> Result<Told<Joined>> {
        let answer = self.ask(name, |group, ticket, now_ms| group.join(join, ticket, now_ms)).await?;
        let Answer::Joined(joined) = answer else { return Err(unexpected()) };
        Ok(joined)
    }

    /// A member asks for its share; answered once the shares of its generation are durable.
    pub(crate) async fn sync(&self, name: &GroupName, sync: Sync) -> Result<Told<Synced>> {
        let answer = self.ask(name, |group, ticket, now_ms| group.sync(sync, ticket, now_ms)).await?;
        let Answer::Synced(synced) = answer else { return Err(unexpected()) };
        Ok(synced)
    }

    /// Offsets are committed; durable on a write quorum once answered.
    pub(crate) async fn commit(&self, name: &GroupName, commit: Commit) -> Result<Told<()>> {
        let answer = self.ask(name, |group, ticket, now_ms| group.commit(commit, ticket, now_ms)).await?;
        let Answer::Committed(committed) = answer else { return Err(unexpected()) };
        Ok(committed)
    }

    /// A member says that it is there.
    pub(crate) async fn heartbeat(&self, name: &GroupName, who: &Who) -> Result<Told<()>> {
        self.act(name, |group, now_ms| (group.heartbeat(who, now_ms), Vec::new())).await
    }

    /// Members leave; each is answered by itself.
    pub(crate) async fn leave(&self, name: &GroupName, leaves: &[Leave]) -> Result<Vec<Told<()>>> {
        self.act(name, |group, now_ms| group.leave(leaves, now_ms)).await
    }

    /// The offsets that a group has committed, of all places or of some: all that were acknowledged before the question, at least.
    pub(super) async fn offsets(
        &self,
        name: &GroupName,
        of: Option<&BTreeSet<Place>>,
    ) -> Result<BTreeMap<Place, Committed>> {
        let committed = |group: &Group| match of {
            None => group.offsets().clone(),
            Some(places) => {
                let found = |place: &Place| Some((*place, group.offsets().get(place)?.clone()));
                places.iter().filter_map(found).collect()
            }
        };
        let owner = self.owner(name);
        let term = self.serve(owner).await?;
        let offsets = owner.with(term, |ledger| ledger.group(name).map(committed))?;
        owner.confirm(&self.inner.topics, term).await?;
        Ok(offsets.unwrap_or_default())
    }

    /// A group; `None` if there is none of that name.
    pub(crate) async fn describe(&self, name: &GroupName) -> Result<Option<GroupView>> {
        self.look(name, view).await
    }

    /// The groups of an organisation that this node coordinates, by name.
    pub(crate) async fn list(&self, org: &OrgName) -> Result<BTreeMap<String, GroupView>> {
        let mut found = BTreeMap::new();
        for partition in 0..PARTITIONS {
            match self.list_in(partition, org.as_str()).await {
                Ok(groups) => found.extend(groups),
                // Whoever asks has to ask every node.
                Err(Error::NotLeader { .. } | Error::UnknownTopic { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Forgets a group with all that it has committed, durably; `None` if there is none of that name.
    pub(crate) async fn delete(&self, name: &GroupName) -> Result<Option<Told<()>>> {
        if self.look(name, |_| ()).await?.is_none() {
            return Ok(None);
        }
        let answer = self.ask(name, |group, ticket, _| group.delete(Some(ticket))).await?;
        let Answer::Forgotten(forgotten) = answer else { return Err(unexpected()) };
        Ok(Some(forgotten))
    }

    /// Forgets offsets of a group, durably, but for those of topics that its members read, which are answered; `None` if there is no
    /// group of that name.
    pub(crate) async fn forget(
        &self,
        name: &GroupName,
        topics: &BTreeMap<String, BTreeSet<Place>>,
    ) -> Result<Option<Told<BTreeSet<String>>>> {
        let read = self.look(name, |group| {
            let is_used = |topic: &&String| group.subscribes_to(topic);
            topics.keys().filter(is_used).cloned().collect::<BTreeSet<String>>()
        });
        let Some(read) = read.await? else { return Ok(None) };
        let places = topics.iter().filter(|(topic, _)| !read.contains(*topic)).flat_map(|(_, places)| places);
        let places: BTreeSet<Place> = places.copied().collect();
        if !places.is_empty() {
            let answer = self.ask(name, |group, ticket, _| group.forget(places, ticket)).await?;
            let Answer::Forgotten(forgotten) = answer else { return Err(unexpected()) };
            if let Err(refusal) = forgotten {
                return Ok(Some(Err(refusal)));
            }
        }
        Ok(Some(Ok(read)))
    }

    /// Whether any group was ever made.
    pub(super) async fn has_groups(&self) -> Result<bool> {
        let cluster = self.inner.topics.cluster();
        let log = self.inner.finder.log(0);
        let found = cluster.find_confirmed(|| cluster.routing().partition(&log).map(drop)).await;
        match found {
            Ok(()) => Ok(true),
            Err(error) if error.is_unknown() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The groups of an organisation in a partition that this node coordinates, by name.
    pub(super) async fn list_in(&self, partition: u32, org: &str) -> Result<Vec<(String, GroupView)>> {
        let unknown = || Error::InvalidRequest { problem: format!("no partition {partition} of groups") };
        let owner = self.inner.owners.get(partition as usize).ok_or_else(unknown)?;
        let term = self.serve(owner).await?;
        owner.with(term, |ledger| {
            let of_org = ledger.groups().filter(|(name, _)| name.org == org);
            of_org.map(|(name, group)| (name.name.clone(), view(group))).collect()
        })
    }

    /// Records that a group was behind in all its partitions together when that was measured last; `None` if it was not measured
    /// here.
    pub(super) fn lag(&self, name: &GroupName) -> Option<u64> {
        self.inner.lags.lock().get(name).copied()
    }

    /// Keeps what was measured in the place of what was before.
    pub(super) fn note_lags(&self, lags: BTreeMap<GroupName, u64>) {
        *self.inner.lags.lock() = lags;
    }

    pub(super) fn topics(&self) -> &Arc<Topics> {
        &self.inner.topics
    }

    pub(super) fn finder(&self) -> &Finder {
        &self.inner.finder
    }

    pub(super) fn owners(&self) -> &[Arc<Owner<Ledger>>] {
        &self.inner.owners
    }

    pub(super) fn owner(&self, name: &GroupName) -> &Arc<Owner<Ledger>> {
        &self.inner.owners[partition_of(name) as usize]
    }

    /// Asks a group that this node coordinates, and waits for its answer.
    async fn ask(
        &self,
        name: &GroupName,
        act: impl FnOnce(&mut Group, Ticket, u64) -> Vec<Effect>,
    ) -> Result<Answer> {
        let owner = self.owner(name);
        let term = self.serve(owner).await?;
        let answer: oneshot::Receiver<Answer> = owner.with(term, |ledger| ledger.ask(name, act))?;
        owner.record(&self.inner.topics);
        answer.await.map_err(|_| Error::NotLeader { key: owner.log().to_string(), hint: None })
    }

    /// Does something with a group that this node coordinates, and does not wait for what follows.
    async fn act<R>(
        &self,
        name: &GroupName,
        act: impl FnOnce(&mut Group, u64) -> (R, Vec<Effect>),
    ) -> Result<R> {
        let owner = self.owner(name);
        let term = self.serve(owner).await?;
        let result = owner.with(term, |ledger| ledger.act(name, act))?;
        owner.record(&self.inner.topics);
        Ok(result)
    }

    /// Looks at a group that this node coordinates.
    async fn look<R>(&self, name: &GroupName, look: impl FnOnce(&Group) -> R) -> Result<Option<R>> {
        let owner = self.owner(name);
        let term = self.serve(owner).await?;
        owner.with(term, |ledger| ledger.group(name).map(look))
    }

    /// Makes sure that this node coordinates a partition. `Unavailable` where taking over lasts long; it goes on then.
    async fn serve(&self, owner: &Arc<Owner<Ledger>>) -> Result<Term> {
        let topics = &self.inner.topics;
        match owner.serves(topics) {
            Ok(Some(term)) => return Ok(term),
            Ok(None) => {}
            Err(error) => {
                self.wake_if_dead(owner.log().partition);
                return Err(error);
            }
        }
        let (taking, node) = (owner.clone(), topics.cluster().node_id());
        let serving = {
            let topics = topics.clone();
            tokio::spawn(async move { taking.serve(&topics).await })
        };
        let late = || Obstacle::TakingOver { node, log: owner.log().to_string() };
        let served = tokio::time::timeout(patience::GROUP_TAKEN_OVER, serving).await.map_err(|_| late())?;
        served.map_err(|problem| Error::Internal { message: problem.to_string() })?
    }

    /// Has a partition led by somebody else where the metadata name an earlier process of this node.
    fn wake_if_dead(&self, partition: u32) {
        let cluster = self.inner.topics.cluster();
        if let Ok(leadership) = cluster.leadership(&self.inner.finder.log(partition))
            && leadership.node == cluster.node_id()
            && !leadership.ours
        {
            self.wake(partition, leadership);
        }
    }

    /// Has a new segment opened, in the background: the leader that the metadata name is gone.
    fn wake(&self, partition: u32, leadership: Leadership) {
        let waking = &self.inner.waking[partition as usize];
        if waking.swap(true, Ordering::Relaxed) {
            return;
        }
        let service = self.clone();
        self.inner.topics.cluster().tasks().spawn("a coordinator", async move {
            let deadline = Instant::now() + patience::GROUP_COORDINATOR;
            service.inner.finder.wake(partition, leadership, deadline).await;
            service.inner.waking[partition as usize].store(false, Ordering::Relaxed);
        });
    }
}

fn view(group: &Group) -> GroupView {
    let (protocol_type, protocol) = group.protocol();
    GroupView {
        phase: group.phase(),
        protocol_type: protocol_type.to_owned(),
        protocol: protocol.to_owned(),
        members: group.members().collect(),
    }
}

pub(super) fn partition_of(name: &GroupName) -> u32 {
    let mut named = name.org.clone().into_bytes();
    named.push(0);
    named.extend_from_slice(name.name.as_bytes());
    crc_fast::crc32_iscsi(&named) % PARTITIONS
}

pub(super) fn unexpected() -> Error {
    Error::Internal { message: "a group answered something else".to_owned() }
}
