//! The data plane of a broker: listeners, routing, the leaders of open segments, and the RPC between brokers.
//!
//! It stores batches through `walrus_log` and reads the cluster's state from published `walrus_metadata` snapshots.
//! It never changes that state itself: it emits control events, and whoever hosts it proposes the commands.

mod awake;
mod broker;
pub mod bucket;
mod catalogue;
mod claims;
mod clock;
mod cluster;
mod config;
mod control;
mod copies;
mod creation;
pub mod cursors;
mod data_plane;
pub mod edge;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod grpc;
mod high_watermark;
mod leader;
mod leadership;
mod liveness;
pub mod metrics;
mod news;
mod node;
pub mod peer;
mod peer_server;
pub mod proto;
mod reader;
mod replication;
mod retirement;
mod roll;
mod rollover;
mod routing;
mod segment;
mod sequencer;
mod space;
mod submission;
mod text;
mod ticket;
mod topic;
mod topics;
mod upkeep;
mod window;

pub use broker::{Broker, WeakBroker};
pub use config::{Config, ConfigError};
pub use data_plane::DataPlane;
pub use error::{Error, Result};
pub use leadership::Leadership;
pub use metrics::Metrics;
pub use node::names::{PartitionRef, TopicName};
pub use node::start_error::StartError;
pub use reader::{ReadOptions, ReadPage};
pub use submission::AppendAck;
pub use topic::{NodeView, PartitionView, SegmentStateView, SegmentView, TopicInfo, TopicState};
