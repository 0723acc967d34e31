//! FindCoordinator: on one node, this one; the offsets topic is made when it is first needed.

use std::rc::Rc;

use thalweg_control::ClusterView;
use thalweg_metadata::controller::InternalTopic;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::find_coordinator_response::Coordinator;
use thalweg_protocol::messages::{FindCoordinatorRequest, FindCoordinatorResponse};
use thalweg_types::TopicPartition;

use super::STOPPING;
use crate::service::Call;
use crate::shard::Shard;

/// `key_type` of groups and of transactions; the third, share groups, does not exist here.
const KEY_GROUP: i8 = 0;
const KEY_TRANSACTION: i8 = 1;

/// First version that asks for several keys (KIP-699).
const VERSION_KEYS: i16 = 4;

/// Answers with this broker.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let keys = match call.version < VERSION_KEYS {
        true => vec![request.key],
        false => request.coordinator_keys,
    };
    let found = find(&shard, request.key_type).await;
    let view = shard.view();
    let endpoint = view.endpoint(call.conn.listener());
    let of = |key: &str| {
        found
            .clone()
            .and_then(|()| is_led(&view, shard.home_of(key)))
    };
    let row = |key: String| match of(&key) {
        Ok(()) => Coordinator {
            key,
            node_id: view.broker_id.0,
            host: endpoint.host.clone(),
            port: i32::from(endpoint.port),
            ..Default::default()
        },
        Err((error, message)) => Coordinator {
            key,
            node_id: -1,
            port: -1,
            error_code: error.code(),
            error_message: Some(message),
            ..Default::default()
        },
    };
    let coordinators: Vec<Coordinator> = keys.into_iter().map(row).collect();
    for row in &coordinators {
        shard.count_error(call.key, row.error_code);
    }
    if call.version >= VERSION_KEYS {
        return FindCoordinatorResponse {
            coordinators,
            ..Default::default()
        };
    }
    let only = coordinators.into_iter().next().unwrap_or_default();
    FindCoordinatorResponse {
        error_code: only.error_code,
        error_message: only.error_message,
        node_id: only.node_id,
        host: only.host,
        port: only.port,
        ..Default::default()
    }
}

async fn find(shard: &Shard, key_type: i8) -> Result<(), (ErrorCode, String)> {
    match key_type {
        KEY_GROUP => {}
        // The one code that clients of both families take as final; see InitProducerId.
        KEY_TRANSACTION => {
            let text = "transactions are not served by this release";
            let error = ErrorCode::TransactionalIdAuthorizationFailed;
            return Err((error, text.to_owned()));
        }
        other => {
            let text = format!("coordinators of type {other} are not served");
            return Err((ErrorCode::InvalidRequest, text));
        }
    }
    make_sure(shard).await
}

/// Every group has a coordinator when this returns: the offsets topic is there, and every shard has opened its partitions
/// of it.
///
/// # Errors
/// COORDINATOR_NOT_AVAILABLE, with what to tell the client.
pub(crate) async fn make_sure(shard: &Shard) -> Result<(), (ErrorCode, String)> {
    let topic = InternalTopic::ConsumerOffsets;
    let known = shard.offsets_topic();
    if known.is_some_and(|known| shard.is_offsets_topic_open(known)) {
        return Ok(());
    }
    // The control plane does one thing after the other: what another request has begun is done when it answers.
    match shard.control.create_internal(topic).await {
        Some(Ok(_)) => {
            if let Some(known) = known {
                shard.on_offsets_topic_open(known);
            }
            Ok(())
        }
        Some(Err(refusal)) => Err((ErrorCode::CoordinatorNotAvailable, refusal.message)),
        None => Err((ErrorCode::CoordinatorNotAvailable, STOPPING.to_owned())),
    }
}

/// Of a group whose partition has no leader nobody knows anything until its disk is back.
fn is_led(view: &ClusterView, home: Option<TopicPartition>) -> Result<(), (ErrorCode, String)> {
    let partition = home.and_then(|home| view.image.partition(home));
    match partition.is_none_or(|partition| partition.leader.is_some()) {
        true => Ok(()),
        false => {
            let text = "the partition with the offsets of this group is offline";
            Err((ErrorCode::CoordinatorNotAvailable, text.to_owned()))
        }
    }
}
