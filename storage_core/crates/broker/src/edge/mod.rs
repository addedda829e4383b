//! The edge where strangers come in: every listener accepts here, with a cap on its connections and limits on how long one may
//! say nothing. The protocol behind that is the listener's.

mod authorize;
mod door;
mod front;
mod guard;
mod pace;
mod principal;
mod traffic;

pub(crate) use authorize::{Operation, Resource, check_allowed, is_allowed};
pub(crate) use door::{Arrival, Door, raise_descriptors};
pub use front::Front;
pub(crate) use guard::GuardedStream;
pub(crate) use pace::Pace;
pub(crate) use principal::Principal;
pub(crate) use traffic::Traffic;
