//! A member of a group.

use bytes::Bytes;

use crate::effect::Ticket;
use crate::record::MemberRecord;
use crate::request::{Join, Protocol};
use crate::subscription::assigned;

/// A member, as whoever lists the group sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// The id that the member was given.
    pub id: String,
    /// The id that a static member has given itself.
    pub instance: Option<String>,
    /// What the client calls itself.
    pub client_id: String,
    /// Where the client is.
    pub host: String,
    /// What the member has said for the chosen protocol.
    pub subscription: Bytes,
    /// What the member reads.
    pub share: Bytes,
}

impl MemberView {
    /// What the member reads, where it is a consumer: topics and their partitions.
    pub fn assigned(&self) -> Vec<(String, Vec<u32>)> {
        assigned(&self.share)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) instance: Option<String>,
    pub(crate) client_id: String,
    pub(crate) host: String,
    pub(crate) session_timeout_ms: u64,
    pub(crate) rebalance_timeout_ms: u64,
    pub(crate) protocols: Vec<Protocol>,
    pub(crate) share: Bytes,
    /// The join that waits for the next generation.
    pub(crate) joining: Option<Ticket>,
    /// The sync that waits for the shares.
    pub(crate) syncing: Option<Ticket>,
    /// Unless it is heard of, the member is gone by then. While one of its requests waits here it need not say anything.
    pub(crate) expires_ms: u64,
}

impl Member {
    pub(crate) fn new(join: Join, now_ms: u64) -> Self {
        let mut member = Self {
            instance: join.instance.clone(),
            client_id: String::new(),
            host: String::new(),
            session_timeout_ms: 0,
            rebalance_timeout_ms: 0,
            protocols: Vec::new(),
            share: Bytes::new(),
            joining: None,
            syncing: None,
            expires_ms: 0,
        };
        member.update(join, now_ms);
        member
    }

    /// The member as a record has it; it has a whole session from now on, since it may have spoken to the coordinator before.
    pub(crate) fn restored(record: MemberRecord, protocol: &str, now_ms: u64) -> Self {
        let protocol = Protocol { name: protocol.to_owned(), metadata: record.subscription };
        Self {
            instance: record.instance,
            client_id: record.client_id,
            host: record.host,
            session_timeout_ms: record.session_timeout_ms,
            rebalance_timeout_ms: record.rebalance_timeout_ms,
            protocols: vec![protocol],
            share: record.share,
            joining: None,
            syncing: None,
            expires_ms: now_ms + record.session_timeout_ms,
        }
    }

    /// Takes what a member says of itself when it joins.
    pub(crate) fn update(&mut self, join: Join, now_ms: u64) {
        let Join { client_id, host, session_timeout_ms, rebalance_timeout_ms, protocols, .. } = join;
        (self.client_id, self.host, self.protocols) = (client_id, host, protocols);
        (self.session_timeout_ms, self.rebalance_timeout_ms) = (session_timeout_ms, rebalance_timeout_ms);
        self.heard(now_ms);
    }

    pub(crate) fn heard(&mut self, now_ms: u64) {
        self.expires_ms = now_ms + self.session_timeout_ms;
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.joining.is_some() || self.syncing.is_some()
    }

    pub(crate) fn knows(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|known| known.name == protocol)
    }

    /// What the member says for a protocol.
    pub(crate) fn metadata(&self, protocol: &str) -> Bytes {
        let known = self.protocols.iter().find(|known| known.name == protocol);
        known.map(|known| known.metadata.clone()).unwrap_or_default()
    }

    pub(crate) fn view(&self, id: &str, protocol: &str) -> MemberView {
        MemberView {
            id: id.to_owned(),
            instance: self.instance.clone(),
            client_id: self.client_id.clone(),
            host: self.host.clone(),
            subscription: self.metadata(protocol),
            share: self.share.clone(),
        }
    }

    pub(crate) fn record(&self, id: &str, protocol: &str, share: Bytes) -> MemberRecord {
        MemberRecord {
            id: id.to_owned(),
            instance: self.instance.clone(),
            client_id: self.client_id.clone(),
            host: self.host.clone(),
            session_timeout_ms: self.session_timeout_ms,
            rebalance_timeout_ms: self.rebalance_timeout_ms,
            subscription: self.metadata(protocol),
            share,
        }
    }
}
