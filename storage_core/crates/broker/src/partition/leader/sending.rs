//! The side of a leader that serves its other replicas: mail, the next batches, and what of the log a voter lacks.

use bytes::Bytes;
use walrus_model::Offset;
use walrus_replica::{LeaderInput, LeaderOutput, Message};

use super::Leader;
use crate::copies::wire::{AppendBytes, Ask};
use crate::node::error::{Error, Result};
use crate::node::locks::{LINK, Lock};
use crate::partition::link::Link;

impl Leader {
    /// Takes the next message for a replica that is no batch.
    pub(crate) fn take_mail(&self, to: usize) -> Option<Message> {
        self.mailboxes[to].mail.lock().pop_front()
    }

    /// Whether there is mail for a replica.
    pub(crate) fn has_mail(&self, to: usize) -> bool {
        !self.mailboxes[to].mail.lock().is_empty()
    }

    /// The connection over which a replica is reached now.
    pub(crate) fn link(&self, to: usize) -> &Lock<Option<Link>, LINK> {
        &self.mailboxes[to].link
    }

    /// Calls the task that serves a replica.
    pub(crate) fn ring(&self, to: usize) {
        self.mailboxes[to].bell.notify_one();
    }

    /// Returns when there is something for a replica.
    pub(crate) async fn bell(&self, to: usize) {
        self.mailboxes[to].bell.notified().await;
    }

    /// Rings if there are batches for a replica.
    pub(crate) fn ring_for_batches(&self, to: usize) {
        if self.state.lock().machine.has_batches_for(to) {
            self.ring(to);
        }
    }

    /// The next batches for a replica, of about `bytes_max` bytes; `None` if it has all of them, or takes none.
    pub(crate) fn next_append(&self, to: usize, bytes_max: usize) -> Result<Option<AppendBytes>> {
        let mut state = self.state.lock();
        if !state.machine.has_batches_for(to) {
            return Ok(None);
        }
        let next = state.machine.next(to);
        let bytes = match state.window.from(next, bytes_max) {
            Some(bytes) => bytes,
            None => {
                // The replica has fallen behind the window. What was sent before need not be durable here.
                drop(state);
                let batches = self.read_aside(next.0, bytes_max)?;
                state = self.state.lock();
                batches
            }
        };
        if bytes.is_empty() || state.machine.next(to) != next {
            return Ok(None);
        }
        let outputs = state.machine.step(LeaderInput::Send { to, batches_max: bytes.len() });
        Ok(outputs.into_iter().find_map(|output| match output {
            LeaderOutput::Send { message: Message::Append(append), .. } => {
                let walrus_replica::Append { epoch, writer, from, batches, commit } = append;
                let batches = bytes[..batches.len()].to_vec();
                Some(AppendBytes { epoch, writer, from, batches, commit })
            }
            _ => None,
        }))
    }

    /// Reads the own log, perhaps from the disk. Blocks this thread, whose other tasks go on elsewhere.
    fn read_aside(&self, from: u64, bytes_max: usize) -> Result<Vec<Bytes>> {
        let read = tokio::task::block_in_place(|| self.log().read(Offset(from), bytes_max));
        let failed = |error| Error::Storage {
            node: self.descriptor.leader.node.0,
            message: format!("{}: {error}", self.label()),
        };
        read.map(|slices| slices.batches).map_err(failed)
    }

    /// The question for a vote, with the first batches of those that the voter lacks, of about `bytes_max` bytes.
    pub(crate) fn missing(&self, accept: &walrus_replica::Accept, bytes_max: usize) -> Result<Ask> {
        let from = accept.missing.first().map_or(accept.value.end, |batch| batch.base);
        let mut batches = Vec::new();
        if from < accept.value.end {
            batches = self.read_aside(from.0, bytes_max)?;
        }
        let accept = walrus_replica::Accept { missing: Vec::new(), ..accept.clone() };
        Ok(Ask::Accept(accept, from, batches, Box::new(self.descriptor.clone())))
    }
}
