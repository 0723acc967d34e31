//! Clients of the classic protocol among the random members of the newer one. They rebalance eagerly or
//! cooperatively, all of one run alike; whoever leads a classic group shares out among its members.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use thalweg_protocol::messages::leave_group_request::MemberIdentity;
use thalweg_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use thalweg_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    SyncGroupRequest, SyncGroupResponse,
};

use super::beats::{encoded_subscription, share_of};
use super::random_newer::{Place, Run};
use crate::{Ask, TopicCatalog, subscription};

/// What a client of the classic protocol does next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Joining,
    Syncing,
    Beating,
}

/// How clients give partitions up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rebalancing {
    /// All, before they join.
    Eager,
    /// What they are not to have any more, and then they join again (KIP-429).
    Cooperative,
}

/// What is of clients of the classic protocol only.
#[derive(Clone, Debug)]
pub(super) struct Classic {
    pub(super) rebalancing: Rebalancing,
    pub(super) phase: Phase,
    /// Members to share out among, with what they said.
    led: Vec<(String, Bytes)>,
}

impl Classic {
    pub(super) fn new(rebalancing: Rebalancing) -> Classic {
        Classic {
            rebalancing,
            phase: Phase::default(),
            led: Vec::new(),
        }
    }
}

impl Run {
    /// What the client does next, its answers being in.
    pub(super) fn go_on_classic(&mut self, nth: usize, phase: Phase) {
        self.clients[nth].is_waiting = true;
        let ask = match phase {
            Phase::Joining => Ask::Join(self.join_request(nth)),
            Phase::Syncing => Ask::Sync(self.sync_request(nth)),
            Phase::Beating => Ask::Heartbeat(HeartbeatRequest {
                group_id: "g".to_owned(),
                generation_id: self.clients[nth].epoch,
                member_id: self.clients[nth].id.clone(),
                group_instance_id: None,
            }),
        };
        self.ask(nth, ask);
    }

    pub(super) fn leave_classic(&mut self, nth: usize) {
        let request = LeaveGroupRequest {
            group_id: "g".to_owned(),
            members: vec![MemberIdentity {
                member_id: self.clients[nth].id.clone(),
                ..Default::default()
            }],
            ..Default::default()
        };
        self.ask(nth, Ask::Leave(request));
    }

    fn join_request(&mut self, nth: usize) -> JoinGroupRequest {
        let client = &mut self.clients[nth];
        let rebalancing = client.classic.as_ref().map(|classic| classic.rebalancing);
        let (name, owned) = match rebalancing {
            Some(Rebalancing::Cooperative) => {
                let owned = client.owned.union(&client.lost);
                ("cooperative-sticky", owned.copied().collect())
            }
            Some(Rebalancing::Eager) | None => {
                client.owned.clear();
                client.lost.clear();
                ("range", BTreeSet::new())
            }
        };
        let (member_id, generation) = (client.id.clone(), client.epoch);
        let topics = client.topics.clone();
        let owned = self.by_name(&owned);
        let generation = if generation == 0 { -1 } else { generation };
        JoinGroupRequest {
            group_id: "g".to_owned(),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 30_000,
            member_id,
            protocol_type: "consumer".to_owned(),
            protocols: vec![JoinGroupRequestProtocol {
                name: name.to_owned(),
                metadata: encoded_subscription(&topics, Some((&owned, generation))),
            }],
            ..Default::default()
        }
    }

    fn sync_request(&self, nth: usize) -> SyncGroupRequest {
        let client = &self.clients[nth];
        let led = client.classic.iter().flat_map(|classic| &classic.led);
        let led: Vec<&(String, Bytes)> = led.collect();
        let shares = self.shares_among(&led);
        let assignments = shares
            .into_iter()
            .map(|(member_id, share)| SyncGroupRequestAssignment {
                member_id,
                assignment: share_of(&share),
            });
        SyncGroupRequest {
            group_id: "g".to_owned(),
            generation_id: client.epoch,
            member_id: client.id.clone(),
            assignments: assignments.collect(),
            ..Default::default()
        }
    }

    /// Each partition to one of those who subscribe to it, but none to another than who still has it.
    fn shares_among(&self, led: &[&(String, Bytes)]) -> BTreeMap<String, Vec<(String, Vec<i32>)>> {
        let said = |(id, metadata): &&(String, Bytes)| {
            let said = subscription::parse(metadata).expect("as it was sent");
            let topics: Vec<String> = said.topics.iter().map(|t| (*t).to_owned()).collect();
            let owned = said.owned.into_iter();
            let owned =
                owned.flat_map(|(t, list)| list.into_iter().map(move |p| (t.to_owned(), p)));
            (id.clone(), topics, owned.collect::<BTreeSet<_>>())
        };
        let members: Vec<_> = led.iter().map(said).collect();
        let mut shares: BTreeMap<String, Vec<(String, Vec<i32>)>> = members
            .iter()
            .map(|(id, ..)| (id.clone(), Vec::new()))
            .collect();
        for topic in self.world.topics.names() {
            let count = self.world.topics.topic(&topic).map_or(0, |t| t.partitions);
            let readers: Vec<_> = members
                .iter()
                .filter(|(_, topics, _)| topics.iter().any(|name| **name == *topic))
                .collect();
            if readers.is_empty() {
                continue;
            }
            for partition in 0..count {
                let (id, ..) = readers[partition as usize % readers.len()];
                let place = (topic.to_string(), partition);
                let is_taken = members
                    .iter()
                    .any(|(other, _, owned)| other != id && owned.contains(&place));
                if !is_taken {
                    let share = shares.entry(id.clone()).or_default();
                    share.push((topic.to_string(), vec![partition]));
                }
            }
        }
        shares
    }

    pub(super) fn hear_join(&mut self, nth: usize, answer: &JoinGroupResponse) {
        let client = &mut self.clients[nth];
        client.is_waiting = false;
        match ErrorCode::from_code(answer.error_code).expect("a code") {
            ErrorCode::None => {}
            ErrorCode::MemberIdRequired => {
                client.id.clone_from(&answer.member_id);
                return;
            }
            ErrorCode::RebalanceInProgress | ErrorCode::NotCoordinator => return,
            ErrorCode::UnknownMemberId => return self.forget_membership(nth),
            other => panic!("join: {other:?}"),
        }
        // A restart may have forgotten a generation, which is given again.
        client.id.clone_from(&answer.member_id);
        client.epoch = answer.generation_id;
        let members = answer.members.iter();
        let led = members.map(|m| (m.member_id.clone(), m.metadata.clone()));
        if let Some(classic) = &mut client.classic {
            classic.led = led.collect();
            classic.phase = Phase::Syncing;
        }
    }

    pub(super) fn hear_sync(&mut self, nth: usize, answer: &SyncGroupResponse) {
        self.clients[nth].is_waiting = false;
        if self.is_refused(nth, answer.error_code) {
            return;
        }
        let share = subscription::parse_share(&answer.assignment).into_iter();
        let told: BTreeSet<Place> = share
            .filter_map(|(name, list)| Some((self.world.topics.id(name)?, list)))
            .flat_map(|(id, list)| list.into_iter().map(move |p| (id, p)))
            .collect();
        let client = &mut self.clients[nth];
        let mut had = client.owned.union(&client.lost);
        let gives_up = had.any(|place| !told.contains(place));
        client.owned = told;
        client.lost.clear();
        if let Some(classic) = &mut client.classic {
            classic.phase = match gives_up {
                true => Phase::Joining,
                false => Phase::Beating,
            };
        }
    }

    pub(super) fn hear_beat(&mut self, nth: usize, answer: &HeartbeatResponse) {
        self.clients[nth].is_waiting = false;
        self.is_refused(nth, answer.error_code);
    }

    fn is_refused(&mut self, nth: usize, code: i16) -> bool {
        let Some(classic) = &mut self.clients[nth].classic else {
            return true;
        };
        match ErrorCode::from_code(code).expect("a code") {
            ErrorCode::None => return false,
            ErrorCode::RebalanceInProgress => classic.phase = Phase::Joining,
            ErrorCode::NotCoordinator => {}
            ErrorCode::IllegalGeneration => {
                // It is a member, of a generation that it has missed.
                classic.phase = Phase::Joining;
                self.clients[nth].owned.clear();
                self.clients[nth].lost.clear();
                self.clients[nth].epoch = 0;
            }
            ErrorCode::UnknownMemberId => self.forget_membership(nth),
            other => panic!("{other:?}"),
        }
        true
    }

    fn forget_membership(&mut self, nth: usize) {
        let client = &mut self.clients[nth];
        client.owned.clear();
        client.lost.clear();
        client.id.clear();
        client.epoch = 0;
        if let Some(classic) = &mut client.classic {
            classic.phase = Phase::Joining;
        }
    }

    fn by_name(&self, places: &BTreeSet<Place>) -> Vec<(String, Vec<i32>)> {
        let named = places.iter().filter_map(|(id, partition)| {
            let name = self.world.topics.name(*id)?;
            Some((name.to_string(), vec![*partition]))
        });
        named.collect()
    }
}
