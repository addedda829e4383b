//! The promises of `apply`: refusals change nothing, repeats act once, partitions stay a chain of segments.

mod cluster;
mod compacted;
mod compaction;
mod comparison;
mod envelopes;
mod membership;
mod organisations;
mod passes;
mod placement;
mod producers;
mod random;
mod remembered;
mod retention;
mod segments;
mod settings;
mod snapshots;
mod topic_config;
mod topics;
