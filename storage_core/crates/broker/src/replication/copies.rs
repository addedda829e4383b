//! All copies of segments on this node.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use uuid::Uuid;
use walrus_log::Store;
use walrus_metadata::Descriptor;
use walrus_replica::{CutId, ReplicaRef};

use super::convert;
use super::copy::Copy;
use crate::config::Config;
use crate::error::{Error, Result};

/// See the module.
pub(crate) struct Copies {
    me: ReplicaRef,
    start: CutId,
    store: Store,
    known: Mutex<HashMap<Uuid, Arc<Copy>>>,
}

impl Copies {
    pub(crate) fn new(config: &Config, store: Store) -> Self {
        let me =
            walrus_metadata::ReplicaRef { node: walrus_metadata::NodeId(config.node_id), disk: config.disk };
        let start = CutId(config.process.as_u128());
        Self { me: convert::replica_ref(me), start, store, known: Mutex::default() }
    }

    /// A copy that this process has used, or that the journal knows of.
    pub(crate) fn find(&self, segment: Uuid) -> Result<Option<Arc<Copy>>> {
        if let Some(copy) = self.known.lock().get(&segment) {
            return Ok(Some(copy.clone()));
        }
        match Copy::recorded(&self.store, segment)? {
            Some(descriptor) => self.open(&descriptor).map(Some),
            None => Ok(None),
        }
    }

    /// The copy of a segment that this disk is to store. Nothing is written by that.
    pub(crate) fn open(&self, descriptor: &Descriptor) -> Result<Arc<Copy>> {
        let stored_here = descriptor.replicas.iter().any(|replica| convert::replica_ref(*replica) == self.me);
        let wrong = |problem: &str| Error::InvalidRequest {
            problem: format!("segment {}: {problem}", descriptor.uuid),
        };
        if !stored_here || descriptor.base_offset.is_none() {
            return Err(wrong("this disk is not one of its replicas, or its base is not known"));
        }
        let mut known = self.known.lock();
        let copy = known.entry(descriptor.uuid).or_insert_with(|| {
            Arc::new(Copy::new(descriptor.clone(), self.me, self.start, self.store.clone()))
        });
        if copy.descriptor() == descriptor {
            Ok(copy.clone())
        } else {
            Err(wrong("another descriptor is known here"))
        }
    }

    /// Whether a message of this disk incarnation is meant for us (R11).
    pub(crate) fn is_me(&self, disk: Uuid) -> bool {
        self.me.disk.0 == disk.as_u128()
    }

    /// This node's place in a replica set.
    pub(crate) fn place(&self, descriptor: &Descriptor) -> Option<usize> {
        descriptor.replicas.iter().position(|replica| convert::replica_ref(*replica) == self.me)
    }

    /// Nobody needs the machine any more.
    pub(crate) fn forget(&self, segment: Uuid) {
        self.known.lock().remove(&segment);
    }
}
