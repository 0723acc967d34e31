//! InitProducerId for idempotent producers (KIP-98). Transactions do not exist in this version.

use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse};
use thalweg_types::{ProducerEpoch, ProducerId};

use crate::service::Call;
use crate::shard::Shard;

/// Gives a new id in epoch 0. An idempotent producer that names the id it has (KIP-360) gets a new one
/// as well, as from Kafka: such a producer raises its epoch by itself and asks only when that is used
/// up or in doubt, and a new id is never wrong.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    _: Call,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    let given = match refusal(&request) {
        Some(error) => Err(error),
        None => shard.producer_ids.next(&shard.control).await,
    };
    match given {
        Ok(id) => InitProducerIdResponse {
            producer_id: id.0,
            producer_epoch: ProducerEpoch(0).0,
            ..Default::default()
        },
        Err(error) => InitProducerIdResponse {
            error_code: error.code(),
            producer_id: ProducerId(-1).0,
            producer_epoch: ProducerEpoch(-1).0,
            ..Default::default()
        },
    }
}

fn refusal(request: &InitProducerIdRequest) -> Option<ErrorCode> {
    match &request.transactional_id {
        Some(id) if id.is_empty() => return Some(ErrorCode::InvalidRequest),
        // The one code that both Java's clients and librdkafka take as final here: librdkafka asks
        // again for ever on most others, UNSUPPORTED_VERSION among them.
        Some(_) => return Some(ErrorCode::TransactionalIdAuthorizationFailed),
        None => {}
    }
    let half = (request.producer_id == -1) != (request.producer_epoch == -1);
    half.then_some(ErrorCode::InvalidRequest)
}
