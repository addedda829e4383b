//! The data plane of a broker: listeners, routing, the leaders of open segments, and the RPC between brokers.
//!
//! It stores batches through `walrus_log` and reads the cluster's state from published `walrus_metadata` snapshots.
//! It never changes that state itself: it emits control events, and whoever hosts it proposes the commands.

mod broker;
pub mod bucket;
mod client_listener;
mod cluster;
mod copies;
pub mod cursors;
mod data_plane;
pub mod edge;
mod ending;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod groups;
mod grpc;
mod kafka;
mod node;
mod owners;
mod partition;
pub mod peer;
mod peer_server;
mod publication;
mod reading;
#[cfg(test)]
mod scenarios;
mod text;
mod topics;
mod upkeep;

pub use broker::Broker;
pub use cluster::leadership::Leadership;
pub use data_plane::DataPlane;
pub use node::config::{Config, ConfigError};
pub use node::error::{Error, Result};
pub use node::metrics::{self, Metrics};
pub use node::names::{OrgName, PartitionRef, TopicName, TopicPath};
pub use node::obstacle::Obstacle;
pub use node::proto;
pub use node::start_error::StartError;
pub use node::versions::WireVersions;
pub use partition::ack::AppendAck;
pub use reading::by_time::{FoundOffset, OffsetAt};
pub use reading::reader::{ReadOptions, ReadPage};
pub use topics::catalogue::{ConfigChange, NewTopic};
pub use topics::view::{
    NodeView, PartitionView, SegmentStateView, SegmentView, TopicDescription, TopicInfo, TopicState,
};
pub use upkeep::hand_over::{HandOver, Staying};
