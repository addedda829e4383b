//! Groups in a cluster's life: the partition is one of those in which coordinators keep groups. Each node runs the machines of
//! `walrus-owners` and `walrus-groups`; members come, commit, leave and die, and somebody commits to a group without members now and
//! then. Whatever they were promised is held against what later coordinators find and tell.

mod asks;
mod book;
mod member;
mod owner;
mod promises;

use std::collections::BTreeMap;

use asks::{Ask, Asker, Told, place};
use member::Member;
use owner::{Answers, Owner};
use promises::Promises;
use walrus_groups::{Answer, Commit, Committed, Forgetting, GroupName};
use walrus_model::NodeId;
use walrus_owners::Entry;

use super::dice::Dice;
use super::surroundings::Surroundings;
use super::{FAULTS_FOR, Simulation, Tally, index};
use crate::record::{self, BatchId};
use crate::world::{Checked, open_segment};

/// When groups are forgotten here: lives are short.
const FORGETTING: Forgetting = Forgetting { after_ms: 20_000, hold_ms: 10_000 };
const MEMBERS: usize = 4;
/// Who commits without being a member.
const QUIET: usize = MEMBERS;
/// Batches that the end of a life may need.
const IDS_LEFT: BatchId = 200;

/// The group that has members.
fn busy() -> GroupName {
    GroupName { org: "default".to_owned(), name: "busy".to_owned() }
}

/// The group that has none.
fn quiet() -> GroupName {
    GroupName { org: "default".to_owned(), name: "quiet".to_owned() }
}

/// Groups, those who coordinate them, and their members.
pub(super) struct Groups {
    dice: Dice,
    owners: Vec<Owner>,
    members: Vec<Member>,
    shared: Shared,
    /// What is committed to the quiet group next, and when.
    quiet: (i64, u64),
}

/// What is outside of any node.
#[derive(Default)]
struct Shared {
    promises: Promises,
    /// What the batches hold that owners have appended.
    contents: BTreeMap<BatchId, Vec<Entry>>,
    takeovers: u64,
    trims: u64,
    commits: u64,
}

impl Groups {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            dice: Dice(seed.rotate_left(16) ^ 0x6709),
            owners: Vec::new(),
            members: (0..MEMBERS).map(Member::new).collect(),
            shared: Shared::default(),
            quiet: (0, 0),
        }
    }

    pub(super) fn count(&self, tally: &mut Tally) {
        tally.takeovers = self.shared.takeovers;
        tally.owner_trims = self.shared.trims;
        tally.commits = self.shared.commits;
    }

    fn tick(&mut self, around: &mut Surroundings<'_>) -> Checked {
        self.shared.promises.are_void = around.world.tells_loss();
        self.start_processes(around);
        self.ask(around);
        let mut answers = Answers::new();
        for at in 0..self.owners.len() {
            let node = around.world.nodes[at].id;
            if around.is_alive(node) {
                self.hand_over_to(node, around, &mut answers);
                self.owners[at].step(around, &mut self.shared, &mut answers)?;
            }
        }
        self.answer(answers, around)
    }

    /// A process that starts knows nothing of groups.
    fn start_processes(&mut self, around: &Surroundings<'_>) {
        for node in &around.world.nodes {
            let fresh = || Owner::new(node.id, node.process(), around.now_ms());
            match self.owners.get_mut(index(node.id)) {
                Some(owner) if owner.process() == node.process() && node.up => {}
                Some(owner) => *owner = fresh(),
                None => self.owners.push(fresh()),
            }
        }
    }

    /// Whoever begins to take over asks all others to hand over. One that does not answer is taken for stopped.
    fn hand_over_to(&mut self, node: NodeId, around: &Surroundings<'_>, answers: &mut Answers) {
        let Some(number) = self.owners[index(node)].begin_taking(around) else { return };
        for other in &around.world.nodes {
            if other.id != node && around.hears(node, other.id) {
                self.owners[index(other.id)].hand_over(number, around.known(other.id), answers);
            }
        }
    }

    /// Lets everybody ask whom they take for the coordinator. One that sleeps looks at that when it wakes up.
    fn ask(&mut self, around: &Surroundings<'_>) {
        let now_ms = around.now_ms();
        let limit = if around.now < FAULTS_FOR { record::IDS_MAX / 2 } else { record::IDS_MAX - IDS_LEFT };
        let goes_on = around.world.next_id < limit;
        for member in &mut self.members {
            member.coordinator = member.coordinator.or_else(|| find(&mut self.dice, around));
            let Some(coordinator) = member.coordinator else { continue };
            if let Some((asker, ask)) = member.act(now_ms, &mut self.dice, &self.shared.promises, goes_on) {
                self.shared.promises.note(asker, &ask);
                self.owners[index(coordinator)].inbox.push((asker, ask));
            }
        }
        if now_ms >= self.quiet.1
            && goes_on
            && let Some(coordinator) = find(&mut self.dice, around)
        {
            let next_ms = if self.dice.one_in(2) { 2_000 } else { FORGETTING.after_ms * 2 };
            self.quiet = (self.quiet.0 + 1, now_ms + next_ms);
            let committed = Committed { offset: self.quiet.0, leader_epoch: -1, metadata: String::new() };
            let commit = Commit { who: None, offsets: [(place(0), committed)].into() };
            let asker = Asker { member: QUIET, question: now_ms };
            self.shared.promises.note(asker, &Ask::Commit(commit.clone()));
            self.owners[index(coordinator)].inbox.push((asker, Ask::Commit(commit)));
        }
    }

    /// Tells everybody what was answered; some of it gets lost.
    fn answer(&mut self, answers: Answers, around: &Surroundings<'_>) -> Checked {
        let now_ms = around.now_ms();
        for (Asker { member, question }, told, by) in answers {
            let is_commit = matches!(told, Told::Group(Answer::Committed(Ok(()))));
            self.shared.commits += u64::from(is_commit);
            if member == QUIET {
                if is_commit {
                    self.shared.promises.commit_quietly(question);
                }
            } else if !self.dice.one_in(50) {
                self.members[member].hear(question, told, (now_ms, by), &mut self.shared.promises)?;
            }
        }
        Ok(())
    }
}

/// The node that leads by the metadata of some node that answers.
fn find(dice: &mut Dice, around: &Surroundings<'_>) -> Option<NodeId> {
    let known = &around.known[dice.index(around.known.len())];
    open_segment(known).map(|open| open.leader.node)
}

impl Simulation {
    /// Lets groups go on, in the lives that have some.
    pub(super) fn coordinate(&mut self) -> Checked {
        let Some(mut groups) = self.groups.take() else { return Ok(()) };
        let alive = self.world.nodes.iter().map(|node| self.is_alive(node.id)).collect();
        let cuts = self.cuts.iter().filter(|cut| cut.2 > self.now).map(|cut| (cut.0, cut.1)).collect();
        let metadata_answer = self.metadata_away <= self.now;
        let before = self.world.metadata.clone();
        let done = groups.tick(&mut Surroundings {
            world: &mut self.world,
            known: &self.known,
            alive,
            cuts,
            metadata_answer,
            now: self.now,
        });
        self.note_past(before);
        self.groups = Some(groups);
        done
    }
}
