//! Settings of the whole cluster.

use walrus_metadata::{Answer, Command, CommandRejection, Envelope, Metadata, apply};

use crate::cluster::{cluster_of, envelope, register, run};

fn set_config(entries: &[(&str, u64)]) -> Command {
    let set = entries.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    Command::SetConfig { set, unset: std::collections::BTreeSet::new() }
}

#[test]
fn settings_compare_with_their_own_version_and_survive_a_snapshot() {
    let mut metadata = cluster_of(1);
    let answer = run(&mut metadata, set_config(&[("segments.max_entries", 10)])).expect("a known key").answer;
    let Answer::Config { version } = answer else { panic!("{answer:?}") };
    run(&mut metadata, register(2)).expect("what else changes does not matter");

    let expecting = |expect| Envelope {
        expect: Some(expect),
        ..envelope(90 + u128::from(expect), set_config(&[("segments.max_entries", 20)]))
    };
    let stale = apply(&mut metadata, &expecting(version - 1));
    assert_eq!(stale, Err(CommandRejection::VersionMismatch { expected: version - 1, current: version }));
    apply(&mut metadata, &expecting(version)).expect("the version that is there");
    assert_eq!(metadata.config.entries["segments.max_entries"], 20);
    let restored = Metadata::from_snapshot(&metadata.to_snapshot()).expect("our own snapshot");
    assert_eq!(restored.config, metadata.config);
}
