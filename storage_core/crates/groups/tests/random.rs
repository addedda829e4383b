//! Random lives of groups whose members do as Kafka's clients do, and come, leave, fall silent and move to another coordinator at
//! any moment.
#![allow(clippy::unwrap_used, reason = "tests unwrap")]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use support::*;
use walrus_groups::{Join, Joined, Phase, Refusal, Ticket};

#[derive(Clone, Debug)]
enum Step {
    /// A client does what is next for it.
    Act(usize),
    /// A client leaves, if it is a member.
    Leave(usize),
    /// A client forgets everything, as a process that was killed.
    Kill(usize),
    /// A client commits one more than before.
    Commit(usize),
    /// The oldest record that is on its way is stored.
    Store,
    /// Time passes.
    Wait(u64),
    /// The coordinator stands still.
    Stand(u64),
    /// The coordinator goes on elsewhere, with the records that were stored.
    Move,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let client = || 0..CLIENTS;
    let step = prop_oneof![
        12 => client().prop_map(Step::Act),
        1 => client().prop_map(Step::Leave),
        1 => client().prop_map(Step::Kill),
        2 => client().prop_map(Step::Commit),
        4 => Just(Step::Store),
        2 => (1..REBALANCE_MS).prop_map(Step::Wait),
        1 => (1..3 * REBALANCE_MS).prop_map(Step::Stand),
        1 => Just(Step::Move),
    ];
    proptest::collection::vec(step, 0..200)
}

const CLIENTS: usize = 5;

#[derive(Clone, Debug, Default)]
struct Client {
    /// Static clients have a name of their own.
    instance: Option<String>,
    id: String,
    generation: i32,
    waits_for: Option<(Ticket, Asked)>,
    /// What it was told when it joined, until it has asked for its share.
    joined: Option<Joined>,
    /// Its share in its generation.
    share: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Join,
    Sync,
}

struct Life {
    driver: Driver,
    clients: Vec<Client>,
    fresh_ids: u64,
    /// Ids of the static client's processes, of which one takes the place of another within a generation.
    static_ids: BTreeSet<String>,
    /// The newest generation of each member, who leads each generation, and who got which share in it; of this coordinator.
    told: BTreeMap<String, i32>,
    leaders: BTreeMap<i32, String>,
    shares: BTreeMap<i32, BTreeMap<String, String>>,
    commits: i64,
    committing: BTreeMap<Ticket, i64>,
    acknowledged: i64,
}

impl Life {
    fn new() -> Self {
        let client = |number: usize| Client {
            instance: (number == 0).then(|| "static".to_owned()),
            ..Client::default()
        };
        Self {
            driver: Driver::new(limits()),
            clients: (0..CLIENTS).map(client).collect(),
            fresh_ids: 0,
            static_ids: BTreeSet::new(),
            told: BTreeMap::new(),
            leaders: BTreeMap::new(),
            shares: BTreeMap::new(),
            commits: 0,
            committing: BTreeMap::new(),
            acknowledged: -1,
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Act(number) => self.act(number),
            Step::Leave(number) => {
                let client = &self.clients[number];
                let (id, instance) = (client.id.clone(), client.instance.clone());
                if client.waits_for.is_none() && !id.is_empty() {
                    self.driver.leave(&[(&id, instance.as_deref())]);
                    self.forget(number);
                }
            }
            Step::Kill(number) => self.forget(number),
            Step::Commit(number) => {
                let client = self.clients[number].clone();
                if client.instance.is_none() && client.share.is_some() {
                    let ticket = self.driver.commit(Some(&client.id), client.generation, self.commits);
                    self.committing.insert(ticket, self.commits);
                    self.commits += 1;
                }
            }
            Step::Store => drop(self.driver.store_one()),
            Step::Wait(ms) => self.driver.advance(ms),
            Step::Stand(ms) => self.driver.stand_still(ms),
            Step::Move => {
                let other = self.driver.restored();
                let old = std::mem::replace(&mut self.driver, other);
                let before = old.offset();
                assert!(self.driver.offset() >= before, "nothing committed is lost");
                // Its answers find nobody: the connections are gone.
                for client in &mut self.clients {
                    client.waits_for = None;
                }
                self.committing.clear();
                self.told.clear();
                self.leaders.clear();
                self.shares.clear();
            }
        }
        self.look();
    }

    fn forget(&mut self, number: usize) {
        let instance = self.clients[number].instance.clone();
        self.clients[number] = Client { instance, ..Client::default() };
    }

    /// A client does what Kafka's do: it joins, asks for its share, and says that it is there.
    fn act(&mut self, number: usize) {
        let client = self.clients[number].clone();
        if client.waits_for.is_some() {
            return;
        }
        let instance = client.instance.as_deref();
        if let Some(joined) = client.joined {
            let share = |(id, _, _): &(String, Option<String>, bytes::Bytes)| {
                (id.clone(), format!("{id}@{}", joined.generation))
            };
            let shares: Vec<(String, String)> = joined.members.iter().map(share).collect();
            let shares: Vec<(&str, &str)> = shares
                .iter()
                .filter(|_| !joined.skips_sharing)
                .map(|(id, share)| (id.as_str(), share.as_str()))
                .collect();
            let ticket = self.driver.sync_as(&client.id, instance, joined.generation, &shares);
            self.clients[number].waits_for = Some((ticket, Asked::Sync));
        } else if client.share.is_some() {
            let told = self.driver.heartbeat_as(&client.id, instance, client.generation);
            self.obey(number, told.err());
        } else {
            self.fresh_ids += 1;
            self.static_ids.extend(instance.map(|_| format!("m{}", self.fresh_ids)));
            let join = Join {
                member: client.id.clone(),
                instance: client.instance.clone(),
                needs_known_id: number.is_multiple_of(2),
                ..joining(&format!("m{}", self.fresh_ids))
            };
            let ticket = self.driver.join(join);
            self.clients[number].waits_for = Some((ticket, Asked::Join));
        }
    }

    /// What a client does when it is refused something.
    fn obey(&mut self, number: usize, refusal: Option<Refusal>) {
        let client = &mut self.clients[number];
        match refusal {
            None => {}
            Some(Refusal::RebalanceInProgress) => (client.joined, client.share) = (None, None),
            Some(Refusal::MemberIdRequired(id)) => client.id = id,
            Some(Refusal::UnknownMember | Refusal::FencedInstance | Refusal::IllegalGeneration) => {
                self.forget(number)
            }
            Some(other) => panic!("{other:?}"),
        }
    }

    /// Clients read their answers, which are held against what others were told.
    fn look(&mut self) {
        for number in 0..CLIENTS {
            let Some((ticket, asked)) = self.clients[number].waits_for else { continue };
            if self.driver.answer(ticket).is_none() {
                continue;
            }
            self.clients[number].waits_for = None;
            match asked {
                Asked::Join => match self.driver.joined_or_refused(ticket) {
                    Ok(joined) => {
                        let leader =
                            self.leaders.entry(joined.generation).or_insert_with(|| joined.leader.clone());
                        if !joined.skips_sharing && joined.leader == joined.member {
                            assert_eq!(
                                joined.members.iter().filter(|(id, ..)| *id == joined.member).count(),
                                1
                            );
                        }
                        // Another coordinator may form a generation once more of which no share was stored.
                        let told = self.told.entry(joined.member.clone()).or_default();
                        assert!(joined.generation >= std::mem::replace(told, joined.generation));
                        let is_renamed = self.static_ids.contains(&joined.leader);
                        assert!(is_renamed || *leader == joined.leader, "one leader each");
                        let client = &mut self.clients[number];
                        (client.id, client.generation) = (joined.member.clone(), joined.generation);
                        (client.share, client.joined) = (None, Some(joined));
                    }
                    Err(refusal) => self.obey(number, Some(refusal)),
                },
                Asked::Sync => match self.driver.share(ticket) {
                    Ok(share) => {
                        let client = &mut self.clients[number];
                        client.joined = None;
                        let share = String::from_utf8(share.to_vec()).unwrap();
                        client.share = Some(share.clone());
                        // Nobody has another one's share, and no generation has two of them.
                        let all = self.shares.entry(client.generation).or_default();
                        all.insert(client.id.clone(), share);
                        let distinct: BTreeSet<&String> =
                            all.values().filter(|share| !share.is_empty()).collect();
                        let given = all.values().filter(|share| !share.is_empty()).count();
                        if self.clients.iter().all(|client| client.instance.is_none()) {
                            assert_eq!(distinct.len(), given);
                        }
                    }
                    Err(refusal) => self.obey(number, Some(refusal)),
                },
            }
        }
        let answered: Vec<Ticket> =
            self.committing.keys().copied().filter(|ticket| self.driver.answer(*ticket).is_some()).collect();
        for ticket in answered {
            let offset = self.committing.remove(&ticket).unwrap();
            if self.driver.committed(ticket).is_ok() {
                self.acknowledged = self.acknowledged.max(offset);
                let stored = self.driver.offsets[&place()].offset;
                assert!(stored >= offset, "acknowledged before it was stored");
            }
        }
        assert!(
            self.driver.offset().unwrap_or(-1) >= self.acknowledged,
            "what was acknowledged stays committed"
        );
    }

    /// All clients go on as they should, until nothing changes any more.
    fn settle(&mut self) {
        for _ in 0..40 {
            for number in 0..CLIENTS {
                self.act(number);
                self.look();
            }
            self.driver.store_all();
            self.look();
            self.driver.advance(SESSION_MS / 4);
            self.look();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn members_agree_and_come_to_rest_and_nothing_committed_is_lost(steps in steps()) {
        let mut life = Life::new();
        steps.iter().for_each(|step| life.step(step));
        life.settle();
        prop_assert_eq!(life.driver.phase(), Phase::Stable);
        let generation = life.driver.group.generation();
        let ids: BTreeSet<String> = life.driver.group.members().map(|member| member.id).collect();
        prop_assert_eq!(ids.len(), CLIENTS, "who fell silent is gone, everybody else is there");
        let mut shares = BTreeSet::new();
        for client in &life.clients {
            prop_assert!(ids.contains(&client.id) && client.generation == generation, "{client:?} in {generation}");
            prop_assert!(shares.insert(client.share.clone().unwrap()));
        }
        prop_assert!(life.clients.iter().all(|client| client.waits_for.is_none()));
    }
}
