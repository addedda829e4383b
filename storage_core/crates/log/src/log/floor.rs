//! The decision what a log may forget: one pure function of its rules, its size and age, what was consumed and what is
//! held.

use std::time::Duration;

use crate::types::Offset;

/// Rules by which a log forgets records without a trim. A record that any one rule gives up may go, unless somebody
/// holds it. The default gives up nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Gives up blocks whose records are all older than this.
    pub age: Option<Duration>,
    /// Gives up the oldest blocks, as long as this many bytes stay.
    pub bytes: Option<u64>,
    /// Gives up what all of these cursors have passed. A cursor that never moved has passed nothing.
    pub consumed_by: Vec<String>,
    /// Names of cursors that hold what they have not passed, whatever the other rules say.
    pub pinned_by: Vec<String>,
}

/// First offset that a log has to keep, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Floor {
    /// Records below this offset may be forgotten.
    pub offset: Offset,
    /// The rule or hold that decided the offset.
    pub reason: FloorReason,
}

/// The rule or hold that a [`Floor`] comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FloorReason {
    /// No rule gives up anything: the floor is the log's start.
    Nothing,
    /// A trim asked for it.
    Trim,
    /// [`Retention::age`] gave up what lies below.
    Age,
    /// [`Retention::bytes`] gave up what lies below.
    Bytes,
    /// [`Retention::consumed_by`] gave up what lies below.
    Consumed,
    /// A rule would give up more, but this reader, replica or cursor still needs it.
    Held {
        /// Name of the reader, replica or cursor.
        by: String,
    },
}

/// The facts about a log from which its floor is decided.
pub(crate) struct Standing<'a> {
    pub(crate) start: u64,
    /// First offset that cannot be read yet.
    pub(crate) end: u64,
    pub(crate) now_ms: i64,
    /// Blocks that take no more batches, in order.
    pub(crate) blocks: &'a [BlockStanding],
    /// Bytes of all blocks of the log.
    pub(crate) size_bytes: u64,
    /// The highest offset that a trim has asked for.
    pub(crate) trim: u64,
    /// Places of the cursors that count as consumers; empty if the rules name none.
    pub(crate) consumers: &'a [u64],
    /// Name and first offset of each hold.
    pub(crate) holds: &'a [(String, u64)],
}

/// The facts about one block from which a floor is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockStanding {
    pub(crate) end: u64,
    pub(crate) max_timestamp: i64,
    pub(crate) bytes: u64,
}

/// Decides the floor of a log: `min(max(trim, age, bytes, consumed), holds)`, never below its start nor above its end.
pub(crate) fn floor(retention: &Retention, standing: &Standing<'_>) -> Floor {
    let consumed = standing.consumers.iter().min();
    let rules = [
        (FloorReason::Trim, standing.trim),
        (FloorReason::Consumed, consumed.copied().unwrap_or(0)),
        (FloorReason::Bytes, retention.bytes.map_or(0, |bytes| behind_bytes(standing, bytes))),
        (FloorReason::Age, retention.age.map_or(0, |age| behind_age(standing, age))),
    ];
    let nothing = (FloorReason::Nothing, standing.start);
    let (mut reason, mut offset) = rules.into_iter().fold(nothing, |highest, (reason, offset)| {
        let offset = offset.min(standing.end);
        if offset > highest.1 { (reason, offset) } else { highest }
    });
    if let Some((by, held)) = standing.holds.iter().min_by_key(|(_, held)| *held)
        && *held < offset
    {
        (reason, offset) = (FloorReason::Held { by: by.clone() }, (*held).max(standing.start));
    }
    Floor { offset: Offset(offset), reason }
}

/// End of the oldest blocks that can go so that at least `bytes_kept` are left; 0 if none can.
fn behind_bytes(standing: &Standing<'_>, bytes_kept: u64) -> u64 {
    let mut left = standing.size_bytes;
    let gone = standing.blocks.iter().take_while(|block| {
        left = left.saturating_sub(block.bytes);
        left >= bytes_kept
    });
    gone.last().map_or(0, |block| block.end)
}

/// End of the oldest blocks that hold only records older than `age`; 0 if there are none.
fn behind_age(standing: &Standing<'_>, age: Duration) -> u64 {
    let age_ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    let oldest = standing.now_ms.saturating_sub(age_ms);
    let gone = standing.blocks.iter().take_while(|block| block.max_timestamp < oldest);
    gone.last().map_or(0, |block| block.end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn blocks() -> impl Strategy<Value = (u64, Vec<BlockStanding>)> {
        let block = (1_u64..20, -50_i64..50, 1_u64..30);
        (0_u64..100, prop::collection::vec(block, 0..8)).prop_map(|(base, blocks)| {
            let mut end = base;
            let made = blocks.into_iter().map(|(records, max_timestamp, bytes)| {
                end += records;
                BlockStanding { end, max_timestamp, bytes }
            });
            (base, made.collect())
        })
    }

    /// All that a decision is made from, owned.
    #[derive(Clone, Debug)]
    struct Case {
        retention: Retention,
        start: u64,
        end: u64,
        blocks: Vec<BlockStanding>,
        open_bytes: u64,
        trim: u64,
        consumers: Vec<u64>,
        holds: Vec<(String, u64)>,
    }

    impl Case {
        fn decide(&self) -> Floor {
            let &Self { start, end, trim, .. } = self;
            let size_bytes = self.open_bytes + self.blocks.iter().map(|block| block.bytes).sum::<u64>();
            let standing = Standing {
                start,
                end,
                now_ms: 0,
                blocks: &self.blocks,
                size_bytes,
                trim,
                consumers: &self.consumers,
                holds: &self.holds,
            };
            floor(&self.retention, &standing)
        }
    }

    fn cases() -> impl Strategy<Value = Case> {
        let retention =
            (prop::option::of(0_u64..60), prop::option::of(0_u64..150)).prop_map(|(age, bytes)| Retention {
                age: age.map(Duration::from_millis),
                bytes,
                ..Retention::default()
            });
        let places = || prop::collection::vec(0_u64..250, 0..3);
        let rest = (0_u64..40, 0_u64..20, 0_u64..250, places(), places());
        (blocks(), retention, rest).prop_map(|((base, blocks), retention, rest)| {
            let (open_records, open_bytes, trim, consumers, holds) = rest;
            let end = blocks.last().map_or(base, |block| block.end) + open_records;
            let holds = holds.into_iter().enumerate().map(|(n, at)| (format!("hold {n}"), at)).collect();
            Case { retention, start: base, end, blocks, open_bytes, trim, consumers, holds }
        })
    }

    proptest! {
        #[test]
        fn the_floor_is_the_formula_and_its_reason_is_true(case in cases()) {
            let Floor { offset: Offset(offset), reason } = case.decide();
            let Case { start, end, ref holds, .. } = case;
            prop_assert!((start..=end).contains(&offset));
            let held = holds.iter().map(|(_, at)| *at).min().unwrap_or(u64::MAX);
            prop_assert!(offset <= held || offset == start);

            let alone = |change: &dyn Fn(&mut Case)| {
                let mut alone = Case { holds: Vec::new(), consumers: Vec::new(), trim: 0, ..case.clone() };
                alone.retention = Retention::default();
                change(&mut alone);
                alone.decide().offset.0
            };
            let trim = alone(&|alone| alone.trim = case.trim);
            let age = alone(&|alone| alone.retention.age = case.retention.age);
            let bytes = alone(&|alone| alone.retention.bytes = case.retention.bytes);
            let consumed = alone(&|alone| alone.consumers.clone_from(&case.consumers));
            let wanted = trim.max(age).max(bytes).max(consumed);
            prop_assert_eq!(offset, wanted.min(held).max(start));
            match reason {
                FloorReason::Nothing => prop_assert_eq!(wanted, start),
                FloorReason::Trim => prop_assert_eq!(offset, trim),
                FloorReason::Age => prop_assert_eq!(offset, age),
                FloorReason::Bytes => prop_assert_eq!(offset, bytes),
                FloorReason::Consumed => prop_assert_eq!(offset, consumed),
                FloorReason::Held { by } => {
                    prop_assert!(held < wanted);
                    prop_assert!(holds.iter().any(|(name, at)| *name == by && *at == held));
                }
            }
        }

        #[test]
        fn what_each_rule_promises_to_keep_is_kept(case in cases()) {
            let Case { trim, ref consumers, .. } = case;
            let offset = case.decide().offset.0;
            let kept = || case.blocks.iter().filter(|block| block.end > offset);
            let gone = || case.blocks.iter().filter(|block| block.end <= offset);
            let is_asked_for = trim >= offset || consumers.iter().min().is_some_and(|at| *at >= offset);
            if offset > case.start && !is_asked_for {
                let bytes = case.open_bytes + kept().map(|block| block.bytes).sum::<u64>();
                let by_bytes = case.retention.bytes.is_some_and(|least| bytes >= least);
                let age_ms = case.retention.age.map(|age| i64::try_from(age.as_millis()).unwrap());
                let by_age = age_ms.is_some_and(|age| gone().all(|block| block.max_timestamp < -age));
                // A hold inside of a block keeps all of it.
                prop_assert!(by_bytes || by_age);
            }
        }

        #[test]
        fn a_hold_only_lowers_and_asking_for_more_only_raises(case in cases(), at in 0_u64..250) {
            let before = case.decide().offset;
            let mut held = case.clone();
            held.holds.push(("another".to_owned(), at));
            prop_assert!(held.decide().offset <= before);
            let mut trimmed = case.clone();
            trimmed.trim = trimmed.trim.max(at);
            prop_assert!(trimmed.decide().offset >= before);
        }
    }
}
