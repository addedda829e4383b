//! The promises of the metadata about segments: one value each (S3), growing epochs and bases without gap (S6), one writer
//! for each segment and epoch (S9), copies never below w; also after the metadata have lost any number of last commands.

mod partition;
mod random;
mod rules;
