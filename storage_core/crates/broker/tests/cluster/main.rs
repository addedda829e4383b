//! Several data planes in one process, with real stores and real sockets, under the real `apply` of the metadata.

mod forwarding;
mod harness;
mod hostile;
mod leases;
mod restart;
mod rollover;
mod topics;
