//! Random lives of a partition, in which the metadata lose their last commands now and then.

use std::collections::BTreeMap;

use proptest::prelude::*;
use walrus_metadata::{Command, CommandRejection, Metadata, SegmentState};
use walrus_model::{Descriptor, Digest, Replication, SegmentId, Value};

use crate::partition::*;

/// A step in the life of one partition, in terms that make sense in any state.
#[derive(Clone, Debug)]
enum Step {
    BeginRoll,
    /// An attempt begins; two attempts at once are two of these steps.
    BeginRecovery {
        above: u32,
    },
    /// The replicas of the last segment that metadata knows decide, for one of the successors ever asked for.
    Decide {
        entries: u64,
        which: usize,
    },
    /// Somebody publishes what the replicas have decided.
    Publish {
        which: usize,
    },
    /// The metadata are again as they were at an earlier time.
    RollBack {
        to: usize,
    },
    Trim {
        below: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::BeginRoll),
        3 => (0..12u32).prop_map(|above| Step::BeginRecovery { above }),
        4 => (0..5u64, any::<usize>()).prop_map(|(entries, which)| Step::Decide { entries, which }),
        5 => any::<usize>().prop_map(|which| Step::Publish { which }),
        2 => any::<usize>().prop_map(|to| Step::RollBack { to }),
        1 => (0..6u64).prop_map(|below| Step::Trim { below }),
    ]
}

/// The knowledge of the replicas, parts of which the metadata may have lost.
#[derive(Default)]
struct Replicas {
    /// Successors asked for, by the segment they would follow.
    proposed: BTreeMap<SegmentId, Vec<Descriptor>>,
    decided: BTreeMap<SegmentId, Value>,
}

impl Replicas {
    fn decide(&mut self, descriptor: &Descriptor, entries: u64, which: usize) {
        let Some(proposed) = self.proposed.get(&descriptor.id) else { return };
        let end = descriptor.base_offset.expect("listed").0 + entries;
        self.decided.entry(descriptor.id).or_insert_with(|| decide(end, &proposed[which % proposed.len()]));
    }

    /// Checks that every published value was decided (S3), and that along the chain epochs grow and bases meet (S6).
    fn check(&self, metadata: &Metadata) -> Result<(), TestCaseError> {
        let partition = &metadata.topics[&TOPIC].partitions[0];
        for pair in partition.segments.windows(2) {
            let SegmentState::Sealed(value) = &pair[0].state else { panic!("only the last is not sealed") };
            prop_assert_eq!(Some(value), self.decided.get(&SegmentId(pair[0].descriptor.id.0)));
            prop_assert_eq!(Some(value.end), pair[1].descriptor.base_offset);
            prop_assert!(pair[0].descriptor.epoch < pair[1].descriptor.epoch);
            prop_assert!(pair[1].descriptor.epoch < partition.next_epoch);
        }
        Ok(())
    }
}

fn apply_step(
    step: &Step,
    metadata: &mut Metadata,
    history: &[Metadata],
    replicas: &mut Replicas,
) -> Result<(), TestCaseError> {
    let descriptor = last(metadata).descriptor.clone();
    match step {
        Step::BeginRoll => {
            if let Ok(next) = begin_roll(metadata) {
                prop_assert!(next.epoch > descriptor.epoch);
                replicas.proposed.entry(descriptor.id).or_default().push(next);
            }
        }
        Step::BeginRecovery { above } => {
            let attempt = attempt(metadata, *above);
            begin_recovery(metadata, descriptor.id, &attempt).expect("the last segment, a fresh epoch");
            prop_assert!(attempt.ballot.epoch > descriptor.epoch && attempt.ballot.epoch.0 > *above);
            replicas.proposed.entry(descriptor.id).or_default().push(attempt.successor);
        }
        Step::Decide { entries, which } => replicas.decide(&descriptor, *entries, *which),
        Step::Publish { which } => {
            let decided: Vec<(&SegmentId, &Value)> = replicas.decided.iter().collect();
            let Some((segment, value)) = decided.get(which % decided.len().max(1)) else { return Ok(()) };
            match publish(metadata, **segment, value) {
                Ok(()) | Err(CommandRejection::UnknownSegment { .. }) => {}
                Err(rejected) => prop_assert!(false, "a decided value was refused: {rejected}"),
            }
            let other = Value { digest: Digest(value.digest.0 ^ 1), ..(*value).clone() };
            let listed = metadata.topics[&TOPIC].partitions[0].segments.iter();
            if listed.clone().any(|listed| listed.descriptor.id == **segment) {
                let alarm = Err(CommandRejection::ValueConflict { segment: **segment });
                prop_assert_eq!(publish(metadata, **segment, &other), alarm);
            }
        }
        Step::RollBack { to } => *metadata = history[to % history.len()].clone(),
        Step::Trim { below } => {
            let _ = run(
                metadata,
                Command::Trim { topic: TOPIC, partition: 0, below_number: *below, first: None },
            );
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_rollback_of_metadata_publishes_a_second_value_or_reuses_an_epoch_along_the_chain(
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mut metadata = cluster(3, Replication::DEFAULT);
        let mut replicas = Replicas::default();
        let mut history = vec![metadata.clone()];
        let mut writers = BTreeMap::new();
        for step in &steps {
            apply_step(step, &mut metadata, &history, &mut replicas)?;
            replicas.check(&metadata)?;
            for listed in &metadata.topics[&TOPIC].partitions[0].segments {
                let Descriptor { id, epoch, leader, .. } = listed.descriptor;
                prop_assert_eq!(*writers.entry((id, epoch)).or_insert(leader), leader, "S9");
            }
            history.push(metadata.clone());
        }
        // Whatever was lost, recovery walks the chain that the replicas know, link by link, to a segment that opens.
        for _ in 0..=replicas.decided.len() {
            let segment = last(&metadata).descriptor.clone();
            let Some(value) = replicas.decided.get(&segment.id) else { break };
            publish(&mut metadata, segment.id, value).expect("decided");
            replicas.check(&metadata)?;
        }
        let open = last(&metadata).descriptor.clone();
        let fresh = attempt(&metadata, 0);
        begin_recovery(&mut metadata, open.id, &fresh).expect("undecided");
        let value = decide(open.base_offset.expect("listed").0, &fresh.successor);
        publish(&mut metadata, open.id, &value).expect("decided");
        prop_assert_eq!(&last(&metadata).state, &SegmentState::Open);
        let listed = &metadata.topics[&TOPIC].partitions[0].segments;
        prop_assert!(listed.windows(2).all(|pair| pair[0].descriptor.epoch < pair[1].descriptor.epoch));
    }
}
