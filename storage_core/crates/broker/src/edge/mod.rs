//! Where strangers come in: every listener accepts here, with a cap on its connections and limits on how long one may say
//! nothing. What comes behind is the listener's.

mod door;
mod front;
mod guard;

pub(crate) use door::{Door, Entered, raise_descriptors};
pub use front::Front;
pub(crate) use guard::Guarded;
