//! One member through all its stages.

use std::time::{Duration, Instant};

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use thalweg_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use thalweg_types::Uuid;

use super::{Action, Answer, FoundTopics, GroupOptions, Loss, Membership, Newer, Question, Taken};
use crate::membership::Farewell;

const TOPIC: Uuid = Uuid([7; 16]);
const INTERVAL: Duration = Duration::from_secs(5);

fn given(epoch: i32, share: Option<&[i32]>) -> Answer {
    let assignment = share.map(|partitions| Assignment {
        topic_partitions: vec![TopicPartitions {
            topic_id: TOPIC,
            partitions: partitions.to_vec(),
        }],
    });
    Answer::Newer(ConsumerGroupHeartbeatResponse {
        member_epoch: epoch,
        heartbeat_interval_ms: 5_000,
        assignment,
        ..Default::default()
    })
}

/// An answer that names a share of nothing.
fn given_nothing(epoch: i32) -> Answer {
    Answer::Newer(ConsumerGroupHeartbeatResponse {
        member_epoch: epoch,
        heartbeat_interval_ms: 5_000,
        assignment: Some(Assignment::default()),
        ..Default::default()
    })
}

fn refused(code: ErrorCode) -> Answer {
    Answer::Newer(ConsumerGroupHeartbeatResponse {
        error_code: code as i16,
        ..Default::default()
    })
}

fn member(instance: Option<&str>) -> (Newer, Instant) {
    let now = Instant::now();
    let options = GroupOptions {
        instance_id: instance.map(str::to_owned),
        ..GroupOptions::new("g", "t")
    };
    let mut me = Newer::new(options, Some("range".to_owned()), Uuid([1; 16]), now);
    assert_eq!(me.next(now), Action::FindCoordinator);
    me.on_coordinator_found();
    (me, now)
}

fn said(me: &Newer, now: Instant) -> ConsumerGroupHeartbeatRequest {
    assert_eq!(me.next(now), Action::Ask);
    match me.question() {
        Ok(Question::Newer(request)) => request,
        other => panic!("{other:?}"),
    }
}

fn takes(me: &mut Newer, now: Instant, share: &[i32]) {
    assert_eq!(me.next(now), Action::LookAt(vec!["t".to_owned()]));
    let found = FoundTopics::from([("t".to_owned(), (TOPIC, 4))]);
    me.on_topics(&found).unwrap();
    let named = share.iter().map(|at| ("t".to_owned(), *at)).collect();
    assert_eq!(me.next(now), Action::Take(named));
    me.on_taken(Taken::All);
}

/// A member that reads `t-0` and `t-1`, in epoch 1, and has said so.
fn stable(instance: Option<&str>) -> (Newer, Instant) {
    let (mut me, now) = member(instance);
    me.on_answer(now, &given(1, Some(&[1, 0]))).unwrap();
    takes(&mut me, now, &[0, 1]);
    me.on_answer(now, &given(1, None)).unwrap();
    assert_eq!(me.next(now), Action::Consume);
    (me, now)
}

#[test]
fn rp_113_it_joins_says_what_it_has_and_then_only_what_is_new() {
    let (mut me, now) = member(None);
    let joining = said(&me, now);
    assert_eq!(joining.member_id, Uuid([1; 16]).to_string());
    assert_eq!(joining.member_epoch, 0);
    assert_eq!(joining.subscribed_topic_names, Some(vec!["t".to_owned()]));
    assert_eq!(joining.server_assignor.as_deref(), Some("range"));
    assert_eq!(joining.topic_partitions, Some(vec![]), "it has nothing yet");
    me.on_answer(now, &given(1, Some(&[0, 1]))).unwrap();
    takes(&mut me, now, &[0, 1]);
    let acknowledging = said(&me, now);
    assert_eq!(acknowledging.member_epoch, 1);
    assert_eq!(acknowledging.subscribed_topic_names, None);
    let has = acknowledging.topic_partitions.unwrap();
    assert_eq!((has[0].topic_id, &has[0].partitions), (TOPIC, &vec![0, 1]));
    me.on_answer(now, &given(1, None)).unwrap();
    assert_eq!(me.next(now), Action::Consume);
    assert_eq!(said(&me, now + INTERVAL).topic_partitions, None);
}

#[test]
fn rp_113_it_gives_up_before_it_is_given_more() {
    let (mut me, now) = stable(None);
    me.on_answer(now, &given(1, Some(&[0]))).unwrap();
    assert_eq!(me.identity().1, 1, "what it gives up it commits as before");
    takes(&mut me, now, &[0]);
    assert_eq!(said(&me, now).topic_partitions.unwrap()[0].partitions, [0]);
    me.on_answer(now, &given(2, None)).unwrap();
    assert_eq!((me.next(now), me.identity().1), (Action::Consume, 2));
}

#[test]
fn rp_113_a_fenced_member_commits_nothing_and_joins_with_its_id() {
    for code in [ErrorCode::FencedMemberEpoch, ErrorCode::UnknownMemberId] {
        let (mut me, now) = stable(None);
        me.on_answer(now + INTERVAL, &refused(code)).unwrap();
        assert_eq!(me.next(now), Action::GiveBack(Loss::Fenced));
        me.on_given_back();
        let again = said(&me, now);
        assert_eq!(again.member_id, Uuid([1; 16]).to_string());
        assert_eq!(
            (again.member_epoch, again.topic_partitions),
            (0, Some(vec![]))
        );
        assert!(again.subscribed_topic_names.is_some());
    }
}

#[test]
fn a_commit_in_an_old_epoch_waits_for_a_heartbeat() {
    let (mut me, now) = stable(None);
    let code = ErrorCode::StaleMemberEpoch as i16;
    me.on_refusal("commit to", code).unwrap();
    assert!(said(&me, now).topic_partitions.is_some(), "all of it");
    me.on_answer(now, &given(2, Some(&[0, 1]))).unwrap();
    assert_eq!((me.next(now), me.identity().1), (Action::Consume, 2));
}

#[test]
fn a_lost_coordinator_is_told_everything_again() {
    let (mut me, now) = stable(None);
    me.on_coordinator_lost();
    assert_eq!(me.next(now), Action::FindCoordinator);
    me.on_coordinator_found();
    let again = said(&me, now);
    assert_eq!(again.member_epoch, 1, "in its place");
    assert!(again.subscribed_topic_names.is_some());
    let loading = me.on_answer(now, &refused(ErrorCode::CoordinatorLoadInProgress));
    assert!(loading.is_err(), "a pause is due");
    assert!(said(&me, now).topic_partitions.is_some());
}

#[test]
fn who_gets_nothing_at_first_waits_for_one_more_answer() {
    let (mut me, now) = member(None);
    me.on_answer(now, &given_nothing(1)).unwrap();
    assert_eq!(
        me.next(now),
        Action::Consume,
        "others have to give up theirs"
    );
    let later = now + INTERVAL;
    assert_eq!(said(&me, later).topic_partitions, None);
    me.on_answer(later, &given(1, None)).unwrap();
    takes(&mut me, later, &[]);
    assert_eq!(me.next(later), Action::Consume);
}

#[test]
fn a_topic_that_nobody_knows_yet_is_asked_for_again() {
    let (mut me, now) = member(None);
    me.on_answer(now, &given(1, Some(&[0]))).unwrap();
    me.on_topics(&FoundTopics::new()).unwrap();
    assert_eq!(me.next(now), Action::Take(vec![]));
    me.on_taken(Taken::All);
    assert_eq!(me.next(now), Action::Consume, "not at once");
    me.on_answer(now + INTERVAL, &given(1, None)).unwrap();
    let again = said(&me, now + INTERVAL);
    assert!(
        again.subscribed_topic_names.is_some(),
        "to be told its share"
    );
    me.on_answer(now, &given(1, Some(&[0]))).unwrap();
    takes(&mut me, now, &[0]);
}

#[test]
fn a_static_member_says_that_it_comes_again() {
    let (me, _) = stable(Some("one"));
    let Farewell::Newer(last) = me.farewell() else {
        panic!("{:?}", me.farewell());
    };
    assert_eq!(
        (last.member_epoch, last.instance_id.as_deref()),
        (-2, Some("one"))
    );
    let (me, _) = stable(None);
    assert!(matches!(me.farewell(), Farewell::Newer(last) if last.member_epoch == -1));
    let (me, _) = member(None);
    assert_eq!(me.farewell(), Farewell::None, "it never joined");
}

#[test]
fn an_instance_that_another_has_is_an_error() {
    let (mut me, now) = member(Some("one"));
    let told = me.on_answer(now, &refused(ErrorCode::UnreleasedInstanceId));
    assert_eq!(
        told.unwrap_err().to_string(),
        "join group g: UNRELEASED_INSTANCE_ID"
    );
}
