//! SaslHandshake and SaslAuthenticate as Kafka answers them on a PLAINTEXT listener: the requests
//! exist (older clients decide by their presence what the broker can do), authentication does not.

use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::{
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};

use crate::service::Call;
use crate::shard::Shard;

/// No mechanism is enabled on this listener.
pub(crate) async fn handshake(
    _: Rc<Shard>,
    _: Call,
    _: SaslHandshakeRequest,
) -> SaslHandshakeResponse {
    SaslHandshakeResponse {
        error_code: ErrorCode::IllegalSaslState.code(),
        ..Default::default()
    }
}

/// There is no authentication to take part in.
pub(crate) async fn authenticate(
    _: Rc<Shard>,
    _: Call,
    _: SaslAuthenticateRequest,
) -> SaslAuthenticateResponse {
    SaslAuthenticateResponse {
        error_code: ErrorCode::IllegalSaslState.code(),
        error_message: Some(
            "this listener is PLAINTEXT: set security.protocol=PLAINTEXT in the client".to_owned(),
        ),
        ..Default::default()
    }
}
