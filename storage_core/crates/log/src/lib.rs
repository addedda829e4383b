//! TBD

pub mod batch;
