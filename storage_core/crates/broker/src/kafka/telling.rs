//! What a producer is told when the leader of a partition is another node. Its appends that are under way on a connection are
//! forwarded, and so are those behind them: they were sent before it could know. When none is under way it is told, and from
//! then on every time: what it had sent behind would overtake what it sends again elsewhere. A node that is about to stop tells
//! those that are never idle, too, behind what is under way: else the end of the connection is all that they hear.

use std::collections::HashMap;

use tokio::time::Instant;
use walrus_model::TopicId;

use crate::node::locks::Lock;
use crate::node::patience;

/// A partition of a topic.
type Key = (TopicId, u32);

/// Number of partitions from which on it is looked which of them need not be kept.
const KEPT_MIN: usize = 64;

/// The appends of one connection, by partition, and where its client was sent elsewhere.
#[derive(Default)]
pub(super) struct Telling {
    partitions: Lock<Partitions>,
}

#[derive(Default)]
struct Partitions {
    states: HashMap<Key, State>,
    /// Number of them at which the next look is due: twice as many as the last one left, so that the looks cost each append little.
    look_at: usize,
}

/// Where a partition is led, from the point of view of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lead {
    /// It is led here, or nobody knows where else.
    Here,
    /// Another node leads, to which the client could go.
    Elsewhere,
    /// Another node leads, and this one is about to stop.
    ElsewhereForGood,
}

/// What became of the appends to one partition on one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    under_way: usize,
    /// When the client was last told of another node.
    told: Option<Instant>,
}

/// An append that is under way on a connection, until this is dropped.
pub(super) struct UnderWay<'a> {
    telling: &'a Telling,
    key: Key,
}

impl Telling {
    /// Takes an append, or answers `None` if its client is to be told that it belongs elsewhere.
    pub(super) fn take(&self, key: Key, lead: Lead) -> Option<UnderWay<'_>> {
        let mut partitions = self.partitions.lock();
        let now = Instant::now();
        partitions.forget(now);
        let state = partitions.states.entry(key).or_default();
        if state.tells(lead, now) {
            return None;
        }
        state.under_way += 1;
        Some(UnderWay { telling: self, key })
    }
}

impl Partitions {
    /// Drops the partitions in which nothing is under way, and of which the client was told long ago: it is told again, as one that
    /// never was.
    fn forget(&mut self, now: Instant) {
        if self.states.len() < self.look_at.max(KEPT_MIN) {
            return;
        }
        self.states.retain(|_, state| state.under_way > 0 || state.lingers(now));
        self.look_at = 2 * self.states.len();
    }
}

impl State {
    /// Whether what was sent behind an append that was refused may still be coming.
    fn lingers(&self, now: Instant) -> bool {
        self.told.is_some_and(|at| now.saturating_duration_since(at) < patience::TOLD_LINGERS)
    }

    /// Whether the client is told that an append belongs elsewhere.
    fn tells(&mut self, lead: Lead, now: Instant) -> bool {
        let is_elsewhere = lead != Lead::Here;
        let tells = match self.told {
            Some(_) => is_elsewhere || self.lingers(now), // where the leader is this node again
            None => lead == Lead::ElsewhereForGood || (is_elsewhere && self.under_way == 0),
        };
        self.told = if tells && is_elsewhere { Some(now) } else { self.told.filter(|_| tells) };
        tells
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut partitions = self.telling.partitions.lock();
        if let Some(state) = partitions.states.get_mut(&self.key) {
            state.under_way -= 1;
            if *state == State::default() {
                partitions.states.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    /// What happens to the appends of one connection to one partition.
    #[derive(Clone, Debug)]
    enum Event {
        Append,
        Answer,
        Leads(Lead),
        Passes { ms: u64 },
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            4 => Just(Event::Append),
            3 => Just(Event::Answer),
            2 => prop_oneof![Just(Lead::Here), Just(Lead::Elsewhere), Just(Lead::ElsewhereForGood)]
                .prop_map(Event::Leads),
            1 => (0u64..2_000).prop_map(|ms| Event::Passes { ms }),
        ]
    }

    proptest! {
        /// An append that was refused while the next one was taken would be overtaken by it.
        #[test]
        fn nothing_overtakes_what_was_refused_and_nothing_is_refused_behind_what_is_under_way(
            events in proptest::collection::vec(event(), 0..60),
        ) {
            let mut state = State::default();
            let (mut now, mut lead) = (Instant::now(), Lead::Here);
            let mut refused_at: Option<Instant> = None;
            for event in events {
                match event {
                    Event::Leads(now) => lead = now,
                    Event::Passes { ms } => now += Duration::from_millis(ms),
                    Event::Answer => state.under_way = state.under_way.saturating_sub(1),
                    Event::Append => {
                        let is_told = state.tells(lead, now);
                        let elsewhere = lead != Lead::Here;
                        let is_behind_refused = refused_at.is_some();
                        if is_told {
                            let may_be_first = lead == Lead::ElsewhereForGood || (elsewhere && state.under_way == 0);
                            prop_assert!(is_behind_refused || may_be_first);
                            if elsewhere { refused_at = Some(now); }
                        } else {
                            let lingered = refused_at.is_none_or(|at| now - at >= patience::TOLD_LINGERS);
                            prop_assert!(lingered && (!is_behind_refused || !elsewhere));
                            refused_at = None;
                            state.under_way += 1;
                        }
                    }
                }
            }
        }
    }

    /// A connection that lived long kept a place for each partition of which it was ever told.
    #[tokio::test(start_paused = true)]
    async fn partitions_of_which_a_client_was_told_long_ago_take_no_memory() {
        let telling = Telling::default();
        let key = |partition| (TopicId::from_u128(1), partition);
        let under_way = telling.take(key(0), Lead::Here);
        for partition in 1..1_000 {
            assert!(telling.take(key(partition), Lead::Elsewhere).is_none());
            tokio::time::advance(patience::TOLD_LINGERS).await;
        }
        let kept = telling.partitions.lock().states.len();
        assert!(kept <= 2 * KEPT_MIN, "{kept} are kept");
        assert!(telling.take(key(0), Lead::Elsewhere).is_some(), "it is behind one that is under way");
        assert!(telling.take(key(1), Lead::Elsewhere).is_none(), "it is told again");
        drop(under_way);
    }

    #[test]
    fn a_partition_that_nothing_is_under_way_in_takes_no_memory() {
        let telling = Telling::default();
        let key = (TopicId::from_u128(1), 0);
        let (first, second) = (telling.take(key, Lead::Here), telling.take(key, Lead::Elsewhere));
        assert!(first.is_some() && second.is_some(), "the second one is behind the first");
        drop((first, second));
        assert!(telling.partitions.lock().states.is_empty());
        assert!(telling.take(key, Lead::Elsewhere).is_none());
    }
}
