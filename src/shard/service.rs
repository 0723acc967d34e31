//! From a frame to a handler: header, version, dispatch, and the answer's way back.
//!
//! `dispatch` is awaited in request order, so what it does itself (queueing appends) keeps the
//! order of the connection; the answers it returns may be completed while later requests are read.

use std::future::Future;
use std::rc::Rc;

use bytes::BytesMut;
use thalweg_metrics::{CloseReason, Stage};
use thalweg_net::{Closing, ConnState, MemoryPermit, RecordSource, Reply, Response, Service, Verdict};
use thalweg_protocol::frame::{self, RequestHeader};
use thalweg_protocol::messages::{
    ApiVersionsRequest, FetchRequest, ProduceRequest, SaslAuthenticateRequest,
    SaslHandshakeRequest,
};
use thalweg_protocol::wire::{DecodeError, Decoder};
use thalweg_protocol::{ApiKey, Message};
use thalweg_reactor::{task, time};
use thalweg_storage::ReadPlan;

use crate::api::metadata::Audience;
use crate::api::{self, served};
use crate::shard::Shard;

/// The software name by which our own client introduces itself.
const OWN_CLIENT: &str = "thalweg";

/// What the answer needs to know of its request.
#[derive(Debug, Clone, Copy)]
struct Asked {
    key: ApiKey,
    version: i16,
    correlation_id: i32,
}

impl Service for Shard {
    async fn dispatch(
        self: &Rc<Self>,
        conn: &Rc<ConnState>,
        frame: BytesMut,
        permit: MemoryPermit,
    ) -> Verdict {
        let (header, body) = match frame::decode_request_header(frame) {
            Ok(decoded) => decoded,
            Err(error) => return refuse(&error),
        };
        let Ok(key) = ApiKey::try_from(header.api_key) else {
            return close(CloseReason::BadRequest, format!("api key {} is unknown", header.api_key));
        };
        self.metrics.borrow_mut().apis.count_request(header.api_key, key.name());
        let asked =
            Asked { key, version: header.api_version, correlation_id: header.correlation_id };
        let version = header.api_version;
        match served(key) {
            Some(row) if (row.served_from..=row.max).contains(&version) => {}
            Some(_) if key == ApiKey::ApiVersions => {
                // KIP-511: the answer to a version from the future is in version 0.
                let asked = Asked { version: 0, ..asked };
                return answer(asked, async { api::api_versions::answer_unsupported() });
            }
            Some(row) => {
                return close(
                    CloseReason::BadRequest,
                    format!("{} version {version} is not in {}..={}", key.name(), row.min, row.max),
                );
            }
            None => {
                return close(
                    CloseReason::BadRequest,
                    format!("{} is not served by this release", key.name()),
                );
            }
        }
        match self.route(conn, &header, asked, body, permit).await {
            Ok(verdict) => verdict,
            Err(error) => refuse(&error),
        }
    }
}

impl Shard {
    async fn route(
        self: &Rc<Self>,
        conn: &Rc<ConnState>,
        header: &RequestHeader,
        asked: Asked,
        body: Decoder,
        permit: MemoryPermit,
    ) -> Result<Verdict, DecodeError> {
        let version = asked.version;
        let shard = Rc::clone(self);
        Ok(match asked.key {
            ApiKey::Produce => self.produce(conn, asked, decode(body, version)?, permit).await,
            ApiKey::Fetch => self.fetch(asked, decode(body, version)?),
            ApiKey::ListOffsets => {
                let request = decode(body, version)?;
                answer(asked, api::list_offsets::answer(shard, request, version))
            }
            ApiKey::Metadata => {
                let request = decode(body, version)?;
                let audience = match conn.client().software_name.as_deref() {
                    Some(OWN_CLIENT) => Audience::Own,
                    Some(_) | None => Audience::Foreign,
                };
                answer(asked, api::metadata::answer(shard, request, version, audience))
            }
            ApiKey::CreateTopics => {
                answer(asked, api::create_topics::answer(shard, decode(body, version)?))
            }
            ApiKey::DeleteTopics => {
                let request = decode(body, version)?;
                answer(asked, api::delete_topics::answer(shard, request, version))
            }
            ApiKey::DescribeCluster => {
                let request = decode(body, version)?;
                answer(asked, async move {
                    api::describe_cluster::answer(&shard.view(), &request)
                })
            }
            ApiKey::ApiVersions => {
                let request: ApiVersionsRequest = decode(body, version)?;
                let response = api::api_versions::answer(&request, version);
                if version >= 3 && response.error_code == 0 {
                    conn.set_software(
                        &request.client_software_name,
                        &request.client_software_version,
                    );
                }
                answer(asked, async { response })
            }
            ApiKey::SaslHandshake => {
                let _: SaslHandshakeRequest = decode(body, version)?;
                answer(asked, async { api::sasl::handshake() })
            }
            ApiKey::SaslAuthenticate => {
                let _: SaslAuthenticateRequest = decode(body, version)?;
                answer(asked, async { api::sasl::authenticate() })
            }
            // `served` has refused every key that has no arm above.
            _ => close(
                CloseReason::BadRequest,
                format!("api key {} is not served", header.api_key),
            ),
        })
    }

    async fn produce(
        self: &Rc<Self>,
        conn: &Rc<ConnState>,
        asked: Asked,
        request: ProduceRequest,
        permit: MemoryPermit,
    ) -> Verdict {
        let began = time::now();
        let silent = request.acks == 0;
        let producing = api::produce::begin(self, request, asked.version, permit).await;
        let shard = Rc::clone(self);
        if silent {
            let conn = Rc::clone(conn);
            task::spawn(async move {
                let response = api::produce::finish(producing).await;
                if api::produce::any_refused(&response) {
                    // RP-6: there is no answer to carry the error.
                    conn.abort(CloseReason::BadRequest);
                }
            });
            return Verdict::Silent;
        }
        answer(asked, async move {
            let response = api::produce::finish(producing).await;
            shard.metrics.borrow_mut().record(Stage::Produce, time::now() - began);
            response
        })
    }

    fn fetch(self: &Rc<Self>, asked: Asked, request: FetchRequest) -> Verdict {
        let shard = Rc::clone(self);
        Verdict::Answer(Box::pin(async move {
            let fetched = api::fetch::answer(Rc::clone(&shard), request, asked.version).await;
            match frame::encode_response(
                asked.key,
                asked.version,
                asked.correlation_id,
                &fetched.response,
            ) {
                Ok(encoded) => {
                    let sources = fetched.plans.into_iter().map(source).collect();
                    Reply::Send(Response::interleave(encoded, sources))
                }
                Err(error) => broken(asked, &error),
            }
        }))
    }
}

/// Decodes the whole body: bytes left over are an error (BI-7).
fn decode<M: Message>(mut body: Decoder, version: i16) -> Result<M, DecodeError> {
    let message = M::decode(&mut body, version)?;
    body.finish()?;
    Ok(message)
}

fn answer<M: Message + 'static>(
    asked: Asked,
    response: impl Future<Output = M> + 'static,
) -> Verdict {
    Verdict::Answer(Box::pin(async move {
        let response = response.await;
        match frame::encode_response(asked.key, asked.version, asked.correlation_id, &response) {
            Ok(encoded) => Reply::Send(Response::plain(encoded)),
            Err(error) => broken(asked, &error),
        }
    }))
}

/// An answer of ours that does not fit its own version: our mistake, and the client must not wait.
fn broken(asked: Asked, error: &dyn std::fmt::Display) -> Reply {
    tracing::error!(api = asked.key.name(), version = asked.version, %error, "answer not encoded");
    Reply::Close(CloseReason::Internal.into())
}

fn refuse(error: &DecodeError) -> Verdict {
    close(CloseReason::BadRequest, error.to_string())
}

fn close(reason: CloseReason, detail: String) -> Verdict {
    Verdict::Close(Closing::because(reason, detail))
}

fn source(plan: ReadPlan) -> RecordSource {
    RecordSource::File { file: plan.file, position: plan.position, len: plan.len }
}
