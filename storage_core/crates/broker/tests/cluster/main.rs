//! Tests of several data planes in one process, with real stores and real sockets, under the real `apply` of the metadata.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod by_time;
mod claims;
mod client;
mod compaction;
mod copies;
mod damage;
mod disks;
mod faults;
mod forwarding;
mod hand_over;
mod harness;
mod hostile;
mod leases;
mod links;
mod load;
mod lost;
mod metadata;
mod peer;
mod promises;
mod replicated;
mod restart;
mod retention;
mod rollover;
mod rot;
mod secret;
mod timestamps;
mod topic_settings;
mod topics;
