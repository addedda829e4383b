//! Checks replication with the machines of `walrus-replica` and the metadata's `apply` as they are: [`model`] goes through
//! every order of a few events, [`simulation`] through many random lives of whole clusters. What is checked, and what is
//! not, is in `docs/internals/verification.md`.

pub mod mistake;
pub mod model;
pub mod record;
pub mod scenario;
pub mod simulation;
pub mod suite;
mod visited;
pub mod world;
