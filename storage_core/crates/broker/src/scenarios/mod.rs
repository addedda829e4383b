//! Tests of the broker's middle in virtual time: real parts on a disk, without listeners, and metadata that a test keeps. Each
//! tells of something that used to be found by chance on whole clusters.

mod catching_up;
mod deleting;
mod denied;
mod leading;
mod node;
mod reading;
mod recovering;
mod rolling;
mod routing;
