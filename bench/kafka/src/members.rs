//! Members of a group, one of whom joins and one of whom leaves: until all others have their part again.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest};
use kafka_protocol::protocol::StrBytes;
use walrus_bench_sample::Sample;

use crate::Arguments;
use crate::connection::Connection;
use crate::coordinator::{connect, group_id};
use crate::topic::check;

const HEARTBEAT_EVERY: Duration = Duration::from_millis(500);
const SESSION_MS: i32 = 30_000;
const REBALANCE_MS: i32 = 60_000;
/// For all members to have their part.
const PATIENCE: Duration = Duration::from_secs(60);
const JOIN_VERSION: i16 = 5;
const SYNC_VERSION: i16 = 3;
const HEARTBEAT_VERSION: i16 = 3;
const LEAVE_VERSION: i16 = 3;
/// What a member has its part of.
const PROTOCOL: &str = "range";
/// Longest wait of a member between two looks whether it is to leave.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What the members tell the one who measures.
#[derive(Default)]
struct Board {
    /// The generation in which each member has its part, and since when.
    settled: Mutex<Vec<Option<(i32, Instant)>>>,
    changed: Condvar,
    leaving: Mutex<Vec<bool>>,
    failed: Mutex<Option<anyhow::Error>>,
}

/// Lets one join and one leave, time after time for the duration of the sample; the median of what each took.
pub(crate) fn measure(arguments: &Arguments) -> Result<Sample> {
    let members = arguments.clients;
    ensure!(members > 1, "one member has nobody to share with");
    let board = Board::default();
    let group = arguments.topic.clone();
    let (mut joins, mut leaves) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        let start = |number: usize| {
            let (board, group) = (&board, &group);
            scope.spawn(move || {
                if let Err(error) = live(arguments, group, board, number) {
                    *board.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
            });
        };
        let measured = (|| -> Result<()> {
            for number in 0..members {
                board.add();
                start(number);
            }
            let mut generation = board.await_settled(members, 0)?.0;
            let began = Instant::now();
            while joins.is_empty() || began.elapsed() < arguments.duration() {
                let (number, since) = (board.add(), Instant::now());
                start(number);
                let (next, at) = board.await_settled(members + 1, generation)?;
                joins.push(at - since);
                let since = Instant::now();
                board.leave(number);
                let (next, at) = board.await_settled(members, next)?;
                leaves.push(at - since);
                generation = next;
            }
            Ok(())
        })();
        board.end();
        measured
    })?;
    let (joined, left) = (median_s(&mut joins), median_s(&mut leaves));
    Ok(Sample::new(joined.max(left), "s")
        .with("join_s", joined)
        .with("leave_s", left)
        .with("rebalances", joins.len()))
}

fn median_s(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, Duration::as_secs_f64)
}

impl Board {
    fn add(&self) -> usize {
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        settled.push(None);
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner).push(false);
        settled.len() - 1
    }

    fn leave(&self, number: usize) {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)[number] = true;
    }

    /// Lets all members end.
    fn end(&self) {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner).fill(true);
    }

    fn is_leaving(&self, number: usize) -> bool {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)[number]
    }

    fn settle(&self, number: usize, generation: Option<i32>) {
        let settled = generation.map(|generation| (generation, Instant::now()));
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)[number] = settled;
        self.changed.notify_all();
    }

    /// Waits until so many members have their part in one generation behind another one; returns it, and since when.
    fn await_settled(&self, members: usize, behind: i32) -> Result<(i32, Instant)> {
        let until = Instant::now() + PATIENCE;
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let newest = settled.iter().flatten().map(|(generation, _)| *generation).max().unwrap_or(0);
            let there: Vec<_> =
                settled.iter().flatten().filter(|(generation, _)| *generation == newest).collect();
            if newest > behind && there.len() == members {
                let at = there.iter().map(|(_, at)| *at).max().context("no members")?;
                return Ok((newest, at));
            }
            if let Some(error) = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return Err(error);
            }
            ensure!(Instant::now() < until, "{} of {members} members have their part", there.len());
            settled =
                self.changed.wait_timeout(settled, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

struct Member<'a> {
    arguments: &'a Arguments,
    connection: Connection,
    group: &'a str,
    id: StrBytes,
    generation: i32,
}

/// The life of a member: it joins, keeps its heartbeat, joins again when it is told to, and leaves.
fn live(arguments: &Arguments, group: &str, board: &Board, number: usize) -> Result<()> {
    let (_, connection) = connect(arguments, group)?;
    let mut member = Member { arguments, connection, group, id: StrBytes::default(), generation: -1 };
    loop {
        if !member.join()? {
            continue;
        }
        board.settle(number, Some(member.generation));
        let mut beat = Instant::now() + HEARTBEAT_EVERY;
        loop {
            if board.is_leaving(number) {
                board.settle(number, None);
                return member.leave();
            }
            if Instant::now() >= beat {
                beat += HEARTBEAT_EVERY;
                if !member.heartbeat()? {
                    break;
                }
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Member<'_> {
    /// Joins and gets its part; false if the members changed meanwhile, so that it has to join again.
    fn join(&mut self) -> Result<bool> {
        let protocol = JoinGroupRequestProtocol::default()
            .with_name(StrBytes::from_static_str(PROTOCOL))
            .with_metadata(Bytes::from_static(&[0, 0, 0, 0, 0, 0, 0, 0]));
        let request = JoinGroupRequest::default()
            .with_group_id(group_id(self.group))
            .with_session_timeout_ms(SESSION_MS)
            .with_rebalance_timeout_ms(REBALANCE_MS)
            .with_protocol_type(StrBytes::from_static_str("consumer"))
            .with_protocols(vec![protocol])
            .with_member_id(self.id.clone());
        let joined = self.connection.ask(JOIN_VERSION, &request)?;
        if joined.error_code == ResponseError::MemberIdRequired.code() {
            self.id = joined.member_id;
            return Ok(false);
        }
        if joined.error_code == ResponseError::NotCoordinator.code() {
            // A node coordinates once it has read what there was before; who asks it sooner asks again, as every client does.
            self.connection = connect(self.arguments, self.group)?.1;
            return Ok(false);
        }
        check(joined.error_code, "a member could not join")?;
        (self.id, self.generation) = (joined.member_id, joined.generation_id);
        let parts = joined.members.into_iter().map(|member| {
            let part = SyncGroupRequestAssignment::default().with_member_id(member.member_id);
            part.with_assignment(Bytes::from_static(b"part"))
        });
        let request = SyncGroupRequest::default()
            .with_group_id(group_id(self.group))
            .with_generation_id(self.generation)
            .with_member_id(self.id.clone())
            .with_assignments(parts.collect());
        let synced = self.connection.ask(SYNC_VERSION, &request)?;
        if !is_settled(synced.error_code, "a member got no part")? {
            return Ok(false);
        }
        ensure!(synced.assignment == "part", "the part of a member is {:?}", synced.assignment);
        Ok(true)
    }

    /// False if the member has to join again.
    fn heartbeat(&mut self) -> Result<bool> {
        let request = HeartbeatRequest::default()
            .with_group_id(group_id(self.group))
            .with_generation_id(self.generation)
            .with_member_id(self.id.clone());
        is_settled(self.connection.ask(HEARTBEAT_VERSION, &request)?.error_code, "a heartbeat failed")
    }

    fn leave(&mut self) -> Result<()> {
        let member = MemberIdentity::default().with_member_id(self.id.clone());
        let request =
            LeaveGroupRequest::default().with_group_id(group_id(self.group)).with_members(vec![member]);
        check(self.connection.ask(LEAVE_VERSION, &request)?.error_code, "a member could not leave")
    }
}

fn is_settled(code: i16, what: &str) -> Result<bool> {
    match ResponseError::try_from_code(code) {
        None => Ok(true),
        Some(ResponseError::RebalanceInProgress) => Ok(false),
        Some(error) => bail!("{what}: {error:?}"),
    }
}
