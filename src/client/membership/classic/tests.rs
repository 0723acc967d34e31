//! One member through all its stages.

use std::time::{Duration, Instant};

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::join_group_response::JoinGroupResponseMember;
use thalweg_protocol::messages::{JoinGroupResponse, SyncGroupResponse};
use thalweg_types::Uuid;

use super::{
    Action, Classic, Farewell, FoundTopics, GroupOptions, Loss, Membership, Question, Taken,
};
use crate::assignor::{Assignor, decode_subscription, encode_assignment, encode_subscription};

fn member(assignors: &[Assignor], now: Instant) -> Classic {
    Classic::new(GroupOptions::new("g", "t"), assignors.to_vec(), now)
}

fn joined(leader: &str, members: &[&str]) -> JoinGroupResponse {
    let member = |id: &&str| JoinGroupResponseMember {
        member_id: (*id).to_owned(),
        metadata: encode_subscription(Assignor::Range, &["t".to_owned()], &[], -1).unwrap(),
        ..Default::default()
    };
    JoinGroupResponse {
        generation_id: 7,
        leader: leader.to_owned(),
        protocol_name: Some("range".to_owned()),
        member_id: "me".to_owned(),
        members: members.iter().map(member).collect(),
        ..Default::default()
    }
}

fn refused(code: ErrorCode) -> JoinGroupResponse {
    JoinGroupResponse {
        error_code: code as i16,
        member_id: "me".to_owned(),
        ..Default::default()
    }
}

fn share() -> Vec<(String, i32)> {
    vec![("t".to_owned(), 1)]
}

/// A member that reads `t-1`, and the moment of its last answer.
fn stable() -> (Classic, Instant) {
    let now = Instant::now();
    let mut me = member(&[Assignor::Range, Assignor::CooperativeSticky], now);
    me.on_coordinator_found();
    me.on_join(&joined("other", &[])).unwrap();
    let assignment = encode_assignment(&share()).unwrap();
    let answer = SyncGroupResponse {
        assignment,
        ..Default::default()
    };
    assert!(matches!(me.question(), Ok(Question::Sync(_))));
    assert_eq!(me.next(now), Action::Ask);
    assert!(me.sync_request().assignments.is_empty(), "no leader");
    me.on_sync(now, &answer).unwrap();
    assert_eq!(me.next(now), Action::Take(share()));
    me.on_taken(Taken::All);
    assert_eq!(me.next(now), Action::Consume);
    (me, now)
}

#[test]
fn a_leader_finds_joins_shares_out_and_syncs() {
    let now = Instant::now();
    let mut me = member(&[Assignor::Range, Assignor::CooperativeSticky], now);
    assert_eq!(me.next(now), Action::FindCoordinator);
    me.on_coordinator_found();
    assert_eq!(me.next(now), Action::Ask);
    assert_eq!(me.join_request().unwrap().member_id, "");
    me.on_join(&refused(ErrorCode::MemberIdRequired)).unwrap();
    assert_eq!(me.next(now), Action::Ask);
    assert_eq!(me.join_request().unwrap().member_id, "me");
    me.on_join(&joined("me", &["me", "other"])).unwrap();
    let count = Action::LookAt(vec!["t".to_owned()]);
    assert_eq!(me.next(now), count);
    let found = FoundTopics::from([("t".to_owned(), (Uuid::ZERO, 2))]);
    me.on_topics(&found).unwrap();
    assert!(matches!(me.question(), Ok(Question::Sync(_))));
    assert_eq!(me.next(now), Action::Ask);
    let request = me.sync_request();
    assert_eq!((request.generation_id, request.assignments.len()), (7, 2));
    assert_eq!(
        request.assignments[1].assignment,
        encode_assignment(&share()).unwrap()
    );
}

#[test]
fn heartbeats_come_when_they_are_due() {
    let (mut me, now) = stable();
    let due = now + Duration::from_secs(3);
    assert_eq!(me.next(due), Action::Ask);
    me.on_heartbeat(due, 0).unwrap();
    assert_eq!(me.next(due), Action::Consume);
}

#[test]
fn a_rebalance_gives_back_with_a_commit_and_keeps_the_id() {
    let (mut me, now) = stable();
    let code = ErrorCode::RebalanceInProgress as i16;
    me.on_heartbeat(now, code).unwrap();
    assert_eq!(me.next(now), Action::GiveBack(Loss::Orderly));
    assert_eq!(me.identity(), ("me", 7), "the commit is signed as before");
    me.on_given_back();
    assert_eq!(me.next(now), Action::Ask);
    assert_eq!(me.join_request().unwrap().member_id, "me");
}

#[test]
fn a_fenced_member_commits_nothing() {
    let (mut me, now) = stable();
    me.on_heartbeat(now, ErrorCode::IllegalGeneration as i16)
        .unwrap();
    assert_eq!(me.next(now), Action::GiveBack(Loss::Fenced));
    assert_eq!(me.identity(), ("me", -1));

    let (mut me, now) = stable();
    me.on_heartbeat(now, ErrorCode::UnknownMemberId as i16)
        .unwrap();
    assert_eq!(me.next(now), Action::GiveBack(Loss::Fenced));
    me.on_given_back();
    assert_eq!(me.join_request().unwrap().member_id, "", "as a new member");
    assert_eq!(me.farewell(), Farewell::None);
}

#[test]
fn a_commit_refused_on_the_way_out_is_not_tried_for_ever() {
    let (mut me, now) = stable();
    let code = ErrorCode::RebalanceInProgress as i16;
    me.on_heartbeat(now, code).unwrap();
    me.on_refusal("commit", code).unwrap();
    assert_eq!(me.next(now), Action::GiveBack(Loss::Fenced));
}

#[test]
fn a_lost_coordinator_is_found_again_and_the_place_kept() {
    let (mut me, now) = stable();
    let moved = me.on_heartbeat(now, ErrorCode::NotCoordinator as i16);
    assert!(moved.is_err(), "a pause is due");
    assert_eq!(me.next(now), Action::FindCoordinator);
    me.on_coordinator_found();
    assert_eq!(me.next(now), Action::Consume);
    assert_eq!(me.identity(), ("me", 7));
}

#[test]
fn refusals_that_nothing_mends_are_errors() {
    let now = Instant::now();
    let mut me = member(&[Assignor::Range, Assignor::CooperativeSticky], now);
    me.on_coordinator_found();
    let error = me.on_join(&refused(ErrorCode::InconsistentGroupProtocol));
    let told = error.unwrap_err().to_string();
    assert_eq!(told, "join group g: INCONSISTENT_GROUP_PROTOCOL");
    let mut damaged = joined("me", &["me"]);
    damaged.members[0].metadata = bytes::Bytes::from_static(b"\0");
    assert!(me.on_join(&damaged).is_err());
}

/// A cooperative member that reads `t-1`.
fn cooperative() -> (Classic, Instant) {
    let now = Instant::now();
    let mut me = member(&[Assignor::CooperativeSticky], now);
    me.on_coordinator_found();
    take_share(&mut me, now, &share(), Taken::All);
    (me, now)
}

/// One round as a follower.
fn take_share(me: &mut Classic, now: Instant, share: &[(String, i32)], taken: Taken) {
    assert_eq!(me.next(now), Action::Ask);
    let mut answer = joined("other", &[]);
    answer.protocol_name = Some("cooperative-sticky".to_owned());
    me.on_join(&answer).unwrap();
    let answer = SyncGroupResponse {
        assignment: encode_assignment(share).unwrap(),
        ..Default::default()
    };
    me.on_sync(now, &answer).unwrap();
    assert_eq!(me.next(now), Action::Take(share.to_vec()));
    me.on_taken(taken);
}

#[test]
fn rp_111_a_cooperative_member_joins_with_what_it_has_and_again_when_it_gave_up() {
    let (mut me, now) = cooperative();
    me.on_heartbeat(now, ErrorCode::RebalanceInProgress as i16)
        .unwrap();
    let request = me.join_request().unwrap();
    let said = decode_subscription(&request.protocols[0].metadata).unwrap();
    assert_eq!((said.owned, said.generation), (share(), Some(7)));
    take_share(&mut me, now, &[], Taken::GaveUp);
    take_share(&mut me, now, &share(), Taken::All);
    assert_eq!(me.next(now), Action::Consume);
}

#[test]
fn a_cooperative_member_that_is_fenced_while_it_joins_gives_back_everything() {
    let (mut me, now) = cooperative();
    me.on_heartbeat(now, ErrorCode::RebalanceInProgress as i16)
        .unwrap();
    me.on_join(&refused(ErrorCode::UnknownMemberId)).unwrap();
    assert_eq!(me.next(now), Action::GiveBack(Loss::Fenced));
    me.on_given_back();
    let request = me.join_request().unwrap();
    let said = decode_subscription(&request.protocols[0].metadata).unwrap();
    assert_eq!((said.owned, said.generation), (Vec::new(), None));
}

#[test]
fn an_eager_member_claims_nothing_as_a_cooperative_one_would() {
    let (mut me, now) = stable();
    me.on_heartbeat(now, ErrorCode::RebalanceInProgress as i16)
        .unwrap();
    me.on_given_back();
    for protocol in me.join_request().unwrap().protocols {
        let said = decode_subscription(&protocol.metadata).unwrap();
        assert_eq!(said.owned, [], "{}", protocol.name);
    }
}

#[test]
fn an_assignor_that_was_not_offered_is_an_error() {
    let now = Instant::now();
    let mut me = member(&[Assignor::Range, Assignor::CooperativeSticky], now);
    me.on_coordinator_found();
    let mut answer = joined("me", &["me"]);
    answer.protocol_name = Some("sticky".to_owned());
    let told = me.on_join(&answer).unwrap_err().to_string();
    assert!(told.contains("`sticky`"), "{told}");
}
