//! Messages and services, generated from `proto/` at the repository's root.
#![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)] // generated

/// The public services.
pub mod v1 {
    tonic::include_proto!("walrus.v1");
}

/// Messages between brokers.
pub mod peer {
    tonic::include_proto!("walrus.peer.v1");
}

/// All of them as an encoded `FileDescriptorSet`, for the reflection service.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/walrus_descriptors.bin"));
