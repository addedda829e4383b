//! Tests of the secret that the nodes of a cluster share.

use std::io::Write as _;

use prost::Message as _;
use serde_json::json;
use walrus_broker::proto::peer::{Challenge, ErrorAnswer, Hello, Proof};
use walrus_broker::{Config, DataPlane, PartitionRef, StartError};
use walrus_model::Replication;

use crate::client::put;
use crate::harness::Cluster;
use crate::peer::{CHALLENGE, ERROR, HELLO, PROOF, Peer, connect_to, frame, hello, proof, read_frame};

const FIRST: &[u8] = b"the first secret of the cluster";
const SECOND: &[u8] = b"the second secret of the cluster";

/// Starts three nodes whose secrets are in a file, and answers the file's directory, too.
fn start(secrets: &[&[u8]]) -> (Cluster, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    write(&directory, secrets);
    let options = json!({ "secret_file": directory.path().join("secret") });
    let cluster = Cluster::start_replicated(3, options, Replication { factor: 3, write_quorum: 3 });
    (cluster, directory)
}

fn write(directory: &tempfile::TempDir, secrets: &[&[u8]]) {
    let next = directory.path().join("next");
    std::fs::write(&next, secrets.join(&b'\n')).unwrap();
    std::fs::rename(next, directory.path().join("secret")).unwrap();
}

/// The cluster's id, which anybody can read at a node's HTTP port, was the only credential.
#[test]
fn only_who_knows_the_secret_is_heard_between_brokers() {
    let (cluster, _directory) = start(&[FIRST, SECOND]);
    let topic = PartitionRef::parse("logs", 0).unwrap();
    cluster.block_on(put(&cluster.broker(1), &topic, "by all three")).unwrap();
    for secret in [FIRST, SECOND] {
        assert!(Peer::greet_as(&cluster, 1, &hello(&cluster), secret).is_ok(), "all are taken");
    }
    let wrong = [b"".as_slice(), b"the first secret", b"the first secret of the cluster\n"];
    for secret in wrong {
        let refusal = Peer::greet_as(&cluster, 1, &hello(&cluster), secret).err().unwrap();
        assert!(refusal.contains("does not know the cluster's secret"), "{refusal}");
    }
    // Nothing that a stranger says is acted upon before: not even the cluster is compared.
    let elsewhere = Hello { cluster_id: vec![1; 16].into(), ..hello(&cluster) };
    let refusal = Peer::greet_as(&cluster, 1, &elsewhere, b"").err().unwrap();
    assert!(!refusal.contains("another cluster"), "{refusal}");
}

#[test]
fn a_proof_that_was_overheard_opens_nothing() {
    let (cluster, _directory) = start(&[FIRST]);
    let hello = hello(&cluster).encode_to_vec();
    let mut overheard = Vec::new();
    let mut nonces = Vec::new();
    for _ in 0..2 {
        let mut stream = connect_to(&cluster, 1);
        stream.write_all(&frame(HELLO, 0, &hello)).unwrap();
        let (kind, _, challenge) = read_frame(&mut stream);
        assert_eq!(kind, CHALLENGE);
        nonces.push(Challenge::decode(challenge.as_slice()).unwrap().nonce);
        // First the acceptor's own proof is sent, then the one that fitted the first connection.
        let of_acceptor = proof(FIRST, "acceptor", &[&hello, &challenge]);
        let sent = if overheard.is_empty() { of_acceptor } else { overheard.clone() };
        stream.write_all(&frame(PROOF, 0, &Proof { mac: sent.into() }.encode_to_vec())).unwrap();
        let (kind, _, payload) = read_frame(&mut stream);
        assert_eq!(kind, ERROR);
        assert!(ErrorAnswer::decode(payload.as_slice()).unwrap().message.contains("secret"));
        overheard = proof(FIRST, "dialler", &[&hello, &challenge]);
    }
    assert_ne!(nonces[0], nonces[1]);
    assert!(nonces.iter().all(|nonce| nonce.len() == 32));
}

#[test]
fn a_secret_is_changed_while_the_nodes_run() {
    let (mut cluster, directory) = start(&[FIRST]);
    let topic = PartitionRef::parse("logs", 0).unwrap();
    cluster.block_on(put(&cluster.broker(1), &topic, "0")).unwrap();
    for secrets in [&[FIRST, SECOND][..], &[SECOND, FIRST], &[SECOND]] {
        write(&directory, secrets);
        // Its connections are made anew.
        cluster.stop_unnoticed(3);
        cluster.restart(3);
        let appended =
            cluster.block_on_long(crate::replicated::put_until_taken(&cluster.broker(3), &topic, "1"));
        assert!(appended >= 1);
    }
    assert!(Peer::greet_as(&cluster, 1, &hello(&cluster), FIRST).is_err());
    assert!(Peer::greet_as(&cluster, 1, &hello(&cluster), SECOND).is_ok());
}

#[test]
fn a_node_does_not_start_without_the_secret_that_it_was_promised() {
    let directory = tempfile::tempdir().unwrap();
    let config = json!({
        "data_dir": directory.path(), "cluster_id": uuid::Uuid::new_v4(), "node_id": 1,
        "disk": uuid::Uuid::new_v4(), "process": uuid::Uuid::new_v4(),
        "secret_file": directory.path().join("secret"),
    });
    let start = || DataPlane::start(Config::parse(&config.to_string()).unwrap());
    for content in [None, Some("short"), Some("")] {
        if let Some(content) = content {
            std::fs::write(directory.path().join("secret"), content).unwrap();
        }
        let error = start().err().unwrap();
        assert!(matches!(&error, StartError::Config(problem) if problem.to_string().contains("secret_file")));
    }
}
