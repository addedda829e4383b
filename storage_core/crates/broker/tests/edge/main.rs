//! Tests of the listeners over real sockets, in front of real data planes.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "the tests of the cluster use all of it")]
#[path = "../cluster/client.rs"]
mod client;
mod compressed;
mod grpc_log;
#[allow(dead_code, reason = "the tests of the cluster use all of it")]
#[path = "../cluster/harness.rs"]
mod harness;
mod kafka_admin;
mod kafka_client;
mod kafka_fetch;
mod kafka_groups;
mod kafka_handshake;
mod kafka_hostile;
mod kafka_leaders;
mod kafka_member;
mod kafka_metrics;
mod kafka_produce;
mod limits;
#[allow(dead_code, reason = "the tests of the cluster interfere with them")]
#[path = "../cluster/links.rs"]
mod links;
#[allow(dead_code, reason = "the tests of the cluster use it")]
#[path = "../cluster/load.rs"]
mod load;
#[path = "../cluster/metadata.rs"]
mod metadata;
mod organisations;
#[allow(dead_code, reason = "the tests of the cluster use all of it")]
#[path = "../cluster/peer.rs"]
mod peer;
mod producers;
mod shared_cursors;
mod spans;
mod text_client;
mod text_protocol;
