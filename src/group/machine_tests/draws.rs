//! What becomes of a join when no id can be drawn.

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::JoinGroupRequest;
use thalweg_types::TimestampMs;

use super::world::WorldTopics;
use crate::{Answer, Ask, Caller, Coordinator, Effect, Now, Settings, Tally, Token};

#[test]
fn a_member_that_can_get_no_id_is_told_to_come_again() {
    let settings = Settings::default();
    let session_timeout_ms = *settings.session_timeout_ms.start();
    let mut machine = Coordinator::new(
        settings,
        Box::new(WorldTopics::default()),
        Box::new(|| None),
    );
    let now = Now {
        ms: 0,
        wall: TimestampMs(0),
    };
    let mut out = Vec::new();
    machine.on_loaded(now, &mut out);
    let join = JoinGroupRequest {
        group_id: "g".to_owned(),
        session_timeout_ms,
        ..JoinGroupRequest::default()
    };
    let caller = Caller {
        client_id: String::new(),
        client_host: String::new(),
        version: 9,
    };
    machine.on_ask(now, &caller, Ask::Join(join), Token(1), &mut out);
    let [Effect::Answer { answer, .. }] = out.as_slice() else {
        panic!("one answer, not {out:?}");
    };
    let Answer::Join(answer) = answer else {
        panic!("not of a join: {answer:?}");
    };
    let code = ErrorCode::from_code(answer.error_code);
    assert_eq!(code, Some(ErrorCode::CoordinatorNotAvailable));
    assert_eq!(machine.tally(), Tally::default(), "no group is left behind");
}
