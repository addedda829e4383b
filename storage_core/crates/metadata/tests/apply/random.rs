//! Random sequences of commands, and random bytes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use walrus_metadata::{
    Command, Envelope, LEVEL, Metadata, NodeState, SegmentState, apply, first_descriptor, successor,
};
use walrus_model::{NodeId, ProcessId, SegmentId, TopicId, Value};

use crate::cluster::{cluster_of, envelope, everybody, last_segment, register, run, uuid, value};

/// A step of the random test, in terms that always make sense; what it hits depends on the state.
#[derive(Clone, Debug)]
enum Step {
    Register(u128),
    /// Another process runs on a node's disk.
    Restart(u8),
    Stop(u8),
    Create(u8, bool),
    AddPartitions(u8, u8),
    Sticky(u8, bool),
    Delete(u8),
    BeginRoll(u8),
    Seal(u8, u64),
    SealWrong(u8),
    Trim(u8, u64),
    Repeat,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (1..6u128).prop_map(Step::Register),
        2 => (1..6u8).prop_map(Step::Restart),
        1 => (1..6u8).prop_map(Step::Stop),
        2 => (0..4u8, any::<bool>()).prop_map(|(topic, sticky)| Step::Create(topic, sticky)),
        1 => (0..4u8, 0..3u8).prop_map(|(topic, more)| Step::AddPartitions(topic, more)),
        1 => (0..4u8, any::<bool>()).prop_map(|(topic, sticky)| Step::Sticky(topic, sticky)),
        1 => (0..4u8).prop_map(Step::Delete),
        3 => (0..4u8).prop_map(Step::BeginRoll),
        6 => (0..4u8, 0..50u64).prop_map(|(topic, entries)| Step::Seal(topic, entries)),
        2 => (0..4u8).prop_map(Step::SealWrong),
        2 => (0..4u8, 0..6u64).prop_map(|(topic, below)| Step::Trim(topic, below)),
        2 => Just(Step::Repeat),
    ]
}

fn named(metadata: &Metadata, n: u8) -> Option<TopicId> {
    metadata.names.get("default")?.get(&format!("t{n}")).copied()
}

fn leaders(sticky: bool) -> BTreeMap<String, String> {
    let value = if sticky { "sticky" } else { "rotate" };
    [("walrus.leaders".to_owned(), value.to_owned())].into()
}

fn command_of(metadata: &Metadata, step: &Step, n: u128) -> Option<Command> {
    Some(match step {
        Step::Register(node) => register(*node),
        Step::Restart(node) => {
            let mut command = register(u128::from(*node));
            if let Command::RegisterNode { process, .. } = &mut command {
                *process = ProcessId(uuid(80_000 + n));
            }
            command
        }
        Step::Stop(node) => {
            let node = metadata.nodes.get(&NodeId(u32::from(*node)))?;
            let mut others = metadata.nodes.values().filter(|other| other.id != node.id);
            others.find(|other| other.state != NodeState::Stopping)?; // somebody leads what the other steps open
            Command::SetNodeState { node: node.id, process: node.process, state: NodeState::Stopping }
        }
        Step::Create(t, sticky) => {
            let topic = TopicId(uuid(1_000 + n));
            let first = vec![first_descriptor(
                metadata,
                &Default::default(),
                (topic, 0, SegmentId(uuid(50_000 + n))),
                &everybody(metadata),
            )?];
            Command::CreateTopic {
                topic,
                org: "default".into(),
                name: format!("t{t}"),
                internal: false,
                config: leaders(*sticky),
                first,
            }
        }
        Step::AddPartitions(t, more) => {
            let topic = named(metadata, *t)?;
            let from = u32::try_from(metadata.topics[&topic].partitions.len()).ok()?;
            let first = |partition: u32| {
                let id = SegmentId(uuid(70_000 + n * 10 + u128::from(partition - from)));
                let config = &metadata.topics[&topic].config;
                first_descriptor(metadata, config, (topic, partition, id), &everybody(metadata))
            };
            let first = (from..from + u32::from(*more)).map(first).collect::<Option<_>>()?;
            Command::AddPartitions { topic, first }
        }
        Step::Sticky(t, sticky) => {
            Command::AlterTopic { topic: named(metadata, *t)?, set: leaders(*sticky), unset: [].into() }
        }
        Step::Delete(t) => Command::DeleteTopic { topic: named(metadata, *t)? },
        Step::BeginRoll(t) => {
            let topic = named(metadata, *t)?;
            let segment = last_segment(metadata, topic).id;
            let successor =
                successor(metadata, topic, 0, SegmentId(uuid(60_000 + n)), &[], &everybody(metadata))?;
            Command::BeginRoll { topic, partition: 0, segment, successor }
        }
        Step::Seal(t, entries) => {
            let topic = named(metadata, *t)?;
            let last = last_segment(metadata, topic);
            let end = last.base_offset?.0 + entries;
            Command::SealAndOpen { topic, partition: 0, segment: last.id, value: value(metadata, topic, end) }
        }
        Step::SealWrong(t) => {
            let topic = named(metadata, *t)?;
            let last = last_segment(metadata, topic);
            let mut value = value(metadata, topic, last.base_offset?.0 + 1);
            value.successor.epoch = last.epoch;
            Command::SealAndOpen { topic, partition: 0, segment: last.id, value }
        }
        Step::Trim(t, below_number) => Command::Trim {
            topic: named(metadata, *t)?,
            partition: 0,
            below_number: *below_number,
            first: None,
        },
        Step::Repeat => return None,
    })
}

proptest! {
    #[test]
    fn any_sequence_of_commands_keeps_the_chain_of_segments_and_refusals_change_nothing(
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let mut metadata = cluster_of(3);
        run(&mut metadata, Command::RaiseLevel { level: LEVEL }).expect("all know it");
        let mut sealed: Vec<(TopicId, SegmentId, Value)> = Vec::new();
        let mut previous: Option<Envelope> = None;
        for (n, step) in (0u128..).zip(&steps) {
            let envelope = match command_of(&metadata, step, n) {
                Some(command) => envelope(10_000 + n, command),
                None => match previous.clone() { Some(envelope) => envelope, None => continue },
            };
            let before = metadata.clone();
            let repeated = previous.as_ref() == Some(&envelope);
            let outcome = apply(&mut metadata, &envelope);
            let same_state = metadata.topics == before.topics && metadata.nodes == before.nodes
                && metadata.names == before.names
                && metadata.version == before.version;
            prop_assert!(!(outcome.is_err() || repeated) || same_state, "{step:?} changed the state: {outcome:?}");
            prop_assert!(metadata.check().is_ok(), "{step:?}: {:?}", metadata.check());
            for (id, node) in &metadata.nodes {
                let was = before.nodes.get(id).filter(|was| was.state == NodeState::Stopping);
                let goes_on = was.is_none_or(|was| node.state == was.state || node.process != was.process);
                prop_assert!(goes_on, "{step:?} ended the stop of {id:?}");
            }
            if let (Ok(_), Command::SealAndOpen { topic, segment, value, .. }) = (&outcome, &envelope.command) {
                sealed.push((*topic, *segment, value.clone()));
            }
            for (topic, segment, value) in &sealed {
                let Some(topic) = metadata.topics.get(topic) else { continue };
                let found = topic.partitions[0].segments.iter().find(|s| s.descriptor.id == *segment);
                let unchanged = found.is_none_or(|s| s.state == SegmentState::Sealed(value.clone()));
                prop_assert!(unchanged, "a sealed segment changed");
            }
            previous = Some(envelope);
        }
        prop_assert_eq!(Metadata::from_snapshot(&metadata.to_snapshot()).expect("its own"), metadata);
    }

    #[test]
    fn bytes_from_the_network_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Envelope::from_json(&bytes, LEVEL);
        let _ = Metadata::from_snapshot(&bytes);
    }
}
