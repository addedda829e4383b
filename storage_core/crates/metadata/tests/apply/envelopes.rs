//! The envelope of a command: its id, the version that it expects, and the version of its JSON.

use walrus_metadata::{Command, CommandRejection, Envelope, LEVEL, NodeState, apply};
use walrus_model::{DiskId, NodeId, ProcessId, TopicId};

use crate::cluster::{cluster_of, envelope, uuid};

#[test]
fn the_same_envelope_twice_acts_once_and_answers_alike() {
    let mut metadata = cluster_of(1);
    let drain = envelope(70, Command::DrainNode { node: NodeId(1), disk: DiskId(uuid(101)), draining: true });
    let first = apply(&mut metadata, &drain);
    let state = metadata.clone();
    assert_eq!(apply(&mut metadata, &drain), first);
    assert_eq!(metadata, state);

    // A command that was refused stays refused, also when it would be legal by now: its proposer was told so.
    let early = envelope(71, Command::DeleteTopic { topic: TopicId(uuid(5)) });
    let refused = apply(&mut metadata, &early);
    assert_eq!(refused, Err(CommandRejection::UnknownTopic { topic: TopicId(uuid(5)) }));
    assert_eq!(apply(&mut metadata, &early), refused);
}

#[test]
fn a_command_with_an_expected_version_is_a_compare_and_set() {
    let mut metadata = cluster_of(1);
    let current = metadata.nodes[&NodeId(1)].version;
    let full =
        Command::SetNodeState { node: NodeId(1), process: ProcessId(uuid(201)), state: NodeState::Full };
    let expecting = |id, expect| Envelope { expect: Some(expect), ..envelope(id, full.clone()) };
    let stale = apply(&mut metadata, &expecting(80, current + 1));
    assert_eq!(stale, Err(CommandRejection::VersionMismatch { expected: current + 1, current }));
    apply(&mut metadata, &expecting(81, current)).expect("the version it is");
    assert_eq!(metadata.nodes[&NodeId(1)].state, NodeState::Full);
}

#[test]
fn a_newer_command_is_named_as_such_although_it_cannot_be_read() {
    let newer = br#"{"v": 2, "command": {"split_partition": {}}}"#;
    assert_eq!(
        Envelope::from_json(newer, LEVEL),
        Err(CommandRejection::UnsupportedVersion { got: 2, supported: 1 })
    );
    let malformed = br#"{"v": 1, "command": {"split_partition": {}}}"#;
    assert!(matches!(Envelope::from_json(malformed, LEVEL), Err(CommandRejection::Malformed { .. })));
}
