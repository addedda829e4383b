//! Topics beside their records: what a disk remembers of them, should the metadata ever forget.

pub(crate) mod remains;
