//! Commands of a newer level are taken only when all members know them, and no member ever meets one that it does not.

use proptest::prelude::*;
use uuid::Uuid;
use walrus_metadata::{Command, CommandRejection, ENVELOPE_VERSION, Envelope, LEVEL, Metadata, apply};
use walrus_model::{NodeId, Replication};

fn envelope(command: Command) -> Envelope {
    Envelope { v: ENVELOPE_VERSION, id: Uuid::new_v4(), at_ms: 0, expect: None, command }
}

fn run(metadata: &mut Metadata, command: Command) -> Result<(), CommandRejection> {
    apply(metadata, &envelope(command)).map(drop)
}

fn register(node: u32, level: u32) -> Command {
    let command = serde_json::json!({"register_node": {
        "wanted": node, "disk": Uuid::from_u128(node.into()), "process": Uuid::new_v4(), "raft_address": "",
        "peer_address": "", "text_address": "", "grpc_address": "", "http_address": "", "level": level,
    }});
    serde_json::from_value(command).expect("a command")
}

fn founded() -> Metadata {
    let mut metadata = Metadata::default();
    let founded = Command::Bootstrap { cluster_id: Uuid::from_u128(99), replication: Replication::single() };
    run(&mut metadata, founded).expect("new");
    metadata
}

/// A command of level 2.
fn newer() -> Command {
    Command::SetConfig { set: [("disks.free_bytes_min".to_owned(), 7)].into(), unset: [].into() }
}

#[test]
fn a_command_is_taken_once_all_members_know_it_and_the_level_was_raised() {
    let mut metadata = founded();
    run(&mut metadata, register(1, 2)).expect("new");
    run(&mut metadata, register(2, 1)).expect("new");
    let early = Err(CommandRejection::LevelNotReached { needed: 2, level: 1 });
    assert_eq!((metadata.reachable_level(), run(&mut metadata, newer())), (None, early.clone()));
    let unknown = CommandRejection::LevelUnknown { node: NodeId(2), knows: 1, needed: 2 };
    assert_eq!(run(&mut metadata, Command::RaiseLevel { level: 2 }), Err(unknown));

    run(&mut metadata, register(2, 2)).expect("upgraded");
    assert_eq!((metadata.reachable_level(), run(&mut metadata, newer())), (Some(2), early));
    run(&mut metadata, Command::RaiseLevel { level: 2 }).expect("known by all");
    run(&mut metadata, Command::RaiseLevel { level: 1 }).expect("harmless");
    assert_eq!((metadata.reachable_level(), metadata.level), (None, 2));
    run(&mut metadata, newer()).expect("reached");

    let older = Err(CommandRejection::TooOld { knows: 1, needed: 2 });
    assert_eq!(run(&mut metadata, register(3, 1)), older);
    assert_eq!(run(&mut metadata, register(1, 1)), older, "a member that was set back");
}

#[test]
fn a_version_reads_no_command_above_its_level_and_names_it() {
    let bytes = serde_json::to_vec(&envelope(newer())).expect("plain data");
    let unsupported = CommandRejection::UnsupportedLevel { got: 2, supported: 1 };
    assert_eq!(Envelope::from_json(&bytes, 1), Err(unsupported));
    assert!(Envelope::from_json(&bytes, LEVEL).is_ok());
}

/// A member that does not know the field `lost` would keep another decision than the others.
#[test]
fn a_decision_that_says_what_is_lost_is_of_a_level_of_its_own() {
    let sealed = |lost: serde_json::Value| -> Command {
        let uuid = Uuid::from_u128(7);
        let descriptor = serde_json::json!({
            "uuid": uuid, "topic": uuid, "partition": 0, "number": 1, "base_offset": 9, "epoch": 2,
            "leader": {"node": 1, "process": uuid}, "replicas": [], "write_quorum": 1,
        });
        let mut value =
            serde_json::json!({"end": 9, "digest": 3, "successor": descriptor, "possible_loss": []});
        if !lost.is_null() {
            value["lost"] = lost;
        }
        let command = serde_json::json!({"seal_and_open": {
            "topic": uuid, "partition": 0, "segment": uuid, "value": value,
        }});
        serde_json::from_value(command).expect("a command")
    };
    assert_eq!(sealed(serde_json::Value::Null).level(), 1);
    assert_eq!(sealed(serde_json::json!([{"start": 1, "end": 2}])).level(), 3);
}

/// A member that does not know the word `lost` could not read the command.
#[test]
fn a_report_that_a_segment_is_lost_is_of_that_level_too() {
    let report = |found: serde_json::Value| -> Command {
        let uuid = Uuid::from_u128(7);
        let report =
            serde_json::json!({"topic": uuid, "partition": 0, "segment": uuid, "since": 1, "found": found});
        let command =
            serde_json::json!({"report_copies": {"replica": {"node": 1, "disk": uuid}, "reports": [report]}});
        serde_json::from_value(command).expect("a command")
    };
    assert_eq!(report(serde_json::json!("gone")).level(), 1);
    assert_eq!(report(serde_json::json!("lost")).level(), 3);
}

#[test]
fn a_state_from_before_there_were_levels_is_at_the_first_one() {
    let mut metadata = founded();
    run(&mut metadata, register(1, 2)).expect("new");
    let mut old: serde_json::Value = serde_json::from_slice(&metadata.to_snapshot()).expect("JSON");
    old["metadata"].as_object_mut().expect("a map").remove("level");
    old["metadata"]["nodes"]["1"].as_object_mut().expect("a map").remove("level");
    let bytes = serde_json::to_vec(&old).expect("JSON");
    let restored = Metadata::from_snapshot(&bytes).expect("a snapshot");
    assert_eq!((restored.level, restored.nodes[&NodeId(1)].level), (1, 1));
}

#[derive(Clone, Debug)]
enum Step {
    Register(u32, u32),
    Raise(u32),
    RaiseReachable,
    Set,
}

proptest! {
    /// The steps stand for any proposals, in whatever order they are committed.
    #[test]
    fn what_was_taken_was_known_to_every_member(steps in prop::collection::vec(prop_oneof![
        (1..4u32, 1..3u32).prop_map(|(node, level)| Step::Register(node, level)),
        (1..4u32).prop_map(Step::Raise),
        Just(Step::RaiseReachable),
        Just(Step::Set),
    ], 1..60)) {
        let mut metadata = founded();
        for step in steps {
            let before = metadata.level;
            match step {
                Step::Register(node, level) => drop(run(&mut metadata, register(node, level))),
                Step::Raise(level) => drop(run(&mut metadata, Command::RaiseLevel { level })),
                Step::RaiseReachable => if let Some(level) = metadata.reachable_level() {
                    let raised = run(&mut metadata, Command::RaiseLevel { level });
                    prop_assert!(raised.is_ok());
                },
                Step::Set => {
                    let taken = run(&mut metadata, newer()).is_ok();
                    prop_assert_eq!(taken, metadata.level >= 2);
                }
            }
            prop_assert!(metadata.level >= before, "it never goes back");
            prop_assert!(metadata.nodes.is_empty() || metadata.nodes.values().all(|node| node.level >= metadata.level));
        }
    }
}
