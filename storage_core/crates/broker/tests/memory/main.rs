//! Tests that measure what strangers can make a node hold. Memory and descriptors are the process's, so these tests have a
//! process of their own, and run one after another.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "the tests of the cluster use all of it")]
#[path = "../cluster/client.rs"]
mod client;
mod descriptors;
#[allow(dead_code, reason = "the tests of the cluster use all of it")]
#[path = "../cluster/harness.rs"]
mod harness;
mod kafka;
#[allow(dead_code, reason = "the tests of the cluster interfere with them")]
#[path = "../cluster/links.rs"]
mod links;
#[allow(dead_code, reason = "the tests of the cluster use it")]
#[path = "../cluster/load.rs"]
mod load;
#[path = "../cluster/metadata.rs"]
mod metadata;
#[allow(dead_code, reason = "the tests of the cluster use all of it")]
#[path = "../cluster/peer.rs"]
mod peer;
mod unread;

/// Held by the test that runs.
static TURN: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
