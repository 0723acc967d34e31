//! One member of a group.

use std::rc::Rc;

use bytes::Bytes;
use thalweg_protocol::messages::JoinGroupRequest;
use thalweg_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use thalweg_types::limits::MEMBER_CLIENT_ID_BYTES_MAX;

use crate::ask::{Caller, Token};

/// Bytes that a member takes beside its texts.
const MEMBER_BYTES: usize = 256;

/// Bytes that a protocol takes beside its texts.
const PROTOCOL_BYTES: usize = 64;

/// Which answer a member waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// None.
    No,
    /// JoinGroup.
    Join(Token),
    /// SyncGroup.
    Sync(Token),
}

/// A member of the classic protocol.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) id: Rc<str>,
    /// `group.instance.id` of a static member (KIP-345).
    pub(crate) instance: Option<Rc<str>>,
    pub(crate) client_id: Box<str>,
    pub(crate) client_host: Box<str>,
    pub(crate) session_ms: u64,
    pub(crate) rebalance_ms: u64,
    /// What it can do, best first: name and metadata.
    pub(crate) protocols: Vec<(Box<str>, Bytes)>,
    /// Its share.
    pub(crate) assignment: Bytes,
    pub(crate) waiting: Waiting,
    /// It was never told its generation, so it can not send heartbeats yet.
    pub(crate) is_new: bool,
    /// It asked for its share in this generation.
    pub(crate) synced: bool,
    /// Its session ends then unless it is heard of (monotonic milliseconds).
    pub(crate) due: u64,
    /// Where its timer stands; at most `due`.
    pub(crate) timer_at: u64,
}

impl Member {
    /// From its request to join. Everything is copied: a slice would hold the whole request.
    pub(crate) fn new(id: Rc<str>, caller: &Caller, request: &JoinGroupRequest) -> Member {
        Member {
            id,
            instance: request.group_instance_id.as_deref().map(Rc::from),
            client_id: kept(&caller.client_id).into(),
            client_host: caller.client_host.as_str().into(),
            session_ms: session_ms(request),
            rebalance_ms: rebalance_ms(caller, request),
            protocols: copied(&request.protocols),
            assignment: Bytes::new(),
            waiting: Waiting::No,
            is_new: true,
            synced: false,
            due: 0,
            timer_at: 0,
        }
    }

    /// Takes what a later request to join says.
    pub(crate) fn update(&mut self, caller: &Caller, request: &JoinGroupRequest) {
        self.session_ms = session_ms(request);
        self.rebalance_ms = rebalance_ms(caller, request);
        self.protocols = copied(&request.protocols);
    }

    /// True when the request names the same protocols with the same metadata.
    pub(crate) fn matches(&self, wanted: &[JoinGroupRequestProtocol]) -> bool {
        let pairs = self.protocols.iter().zip(wanted);
        self.protocols.len() == wanted.len()
            && pairs
                .into_iter()
                .all(|((name, metadata), w)| **name == *w.name && *metadata == w.metadata)
    }

    /// Its metadata for a protocol; empty when it does not know it.
    pub(crate) fn metadata(&self, protocol: &str) -> Bytes {
        let found = self.protocols.iter().find(|(name, _)| **name == *protocol);
        found.map_or_else(Bytes::new, |(_, metadata)| metadata.clone())
    }

    /// By how much it would grow if it took what a request to join brings.
    pub(crate) fn growth(&self, request: &JoinGroupRequest) -> usize {
        protocol_bytes_asked(request).saturating_sub(self.protocol_bytes())
    }

    fn protocol_bytes(&self) -> usize {
        let protocols = self.protocols.iter();
        protocols
            .map(|(n, m)| PROTOCOL_BYTES + n.len() + m.len())
            .sum()
    }

    /// What it counts for in the bounds.
    pub(crate) fn bytes(&self) -> usize {
        MEMBER_BYTES
            + self.id.len()
            + self.instance.as_deref().map_or(0, str::len)
            + self.client_id.len()
            + self.client_host.len()
            + self.protocol_bytes()
            + self.assignment.len()
    }
}

/// What a new member would add to the bounds.
pub(crate) fn bytes_asked(request: &JoinGroupRequest) -> usize {
    let instance = request.group_instance_id.as_deref().map_or(0, str::len);
    MEMBER_BYTES + 2 * MEMBER_CLIENT_ID_BYTES_MAX + instance + protocol_bytes_asked(request)
}

fn protocol_bytes_asked(request: &JoinGroupRequest) -> usize {
    let protocols = request.protocols.iter();
    protocols
        .map(|p| PROTOCOL_BYTES + p.name.len() + p.metadata.len())
        .sum()
}

/// A client's id as far as it is kept.
pub(crate) fn kept(client_id: &str) -> &str {
    let mut end = client_id.len().min(MEMBER_CLIENT_ID_BYTES_MAX);
    while !client_id.is_char_boundary(end) {
        end -= 1;
    }
    &client_id[..end]
}

fn session_ms(request: &JoinGroupRequest) -> u64 {
    u64::from(request.session_timeout_ms.max(0).unsigned_abs())
}

/// Version 0 has one timeout for both.
pub(crate) fn rebalance_ms(caller: &Caller, request: &JoinGroupRequest) -> u64 {
    match u64::try_from(request.rebalance_timeout_ms) {
        Ok(ms) if caller.version > 0 => ms,
        Ok(_) | Err(_) => session_ms(request),
    }
}

pub(crate) fn copied(protocols: &[JoinGroupRequestProtocol]) -> Vec<(Box<str>, Bytes)> {
    let copy = |p: &JoinGroupRequestProtocol| {
        let metadata = Bytes::copy_from_slice(&p.metadata);
        (Box::from(p.name.as_str()), metadata)
    };
    protocols.iter().map(copy).collect()
}
