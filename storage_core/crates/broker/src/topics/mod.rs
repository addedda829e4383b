//! Topics beside their records: which there are, what is shown of them, and how they are made.

pub(crate) mod catalogue;
pub(crate) mod creation;
pub(crate) mod view;
