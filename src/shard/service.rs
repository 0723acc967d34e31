//! From a frame to a handler: header, version, dispatch, and the answer's way back.
//!
//! `dispatch` is called in request order, and where it waits ([`Dispatch::Waits`]) that is awaited before the next call, so
//! what it does itself (queueing appends) keeps the order of the connection; the answers may be completed while later
//! requests are read.

use std::future::Future;
use std::rc::Rc;

use bytes::BytesMut;
use thalweg_metrics::CloseReason;
use thalweg_net::{
    Account, Closing, ConnState, Dispatch, FileRange, Heat, MemoryPermit, Parked, Reply, Response,
    Service, Unread, Verdict,
};
use thalweg_protocol::frame;
use thalweg_protocol::messages::FetchRequest;
use thalweg_protocol::wire::{DecodeError, Decoder};
use thalweg_protocol::{ApiKey, Message, Request};
use thalweg_reactor::task;
use thalweg_storage::ReadPlan;
use thalweg_types::limits::{REQUEST_ELEMENTS_MAX, SMALL_REQUEST_BYTES_MAX};

use crate::api::produce::Producing;
use crate::api::{self, served};
use crate::growing::Grown;
use crate::pace::{LargeTurnGuard, Pace};
use crate::shard::Shard;

/// The software name by which our own client introduces itself.
const OWN_CLIENT: &str = "thalweg";

/// A request's circumstances: what its handler may ask beside its fields.
#[derive(Clone)]
pub(crate) struct Call {
    /// The API.
    pub(crate) key: ApiKey,
    /// Version of the request and so of its answer.
    pub(crate) version: i16,
    correlation_id: i32,
    /// `client_id` of the request header.
    pub(crate) client_id: Option<Rc<str>>,
    /// The connection it came by.
    pub(crate) conn: Rc<ConnState>,
    /// The memory of a large request, held until its answer is built: what it decoded into may be
    /// parked meanwhile. Small requests give theirs back at once, so that long polls do not use up
    /// the share of the others.
    hold: Option<Rc<MemoryPermit>>,
}

impl Call {
    fn holding(self, permit: MemoryPermit) -> Call {
        let large = permit.bytes() > SMALL_REQUEST_BYTES_MAX;
        Call {
            hold: large.then(|| Rc::new(permit)),
            ..self
        }
    }

    /// How an answer that may be far larger than its request is built: in slices when its turn among
    /// large ones keeps others from being built beside it, else in one go.
    pub(crate) fn pace(&self) -> Pace {
        match self.is_large() {
            true => Pace::default(),
            false => Pace::whole(),
        }
    }

    /// True when the request waits for its turn among large ones before it is decoded.
    pub(crate) fn is_large(&self) -> bool {
        self.hold.is_some()
    }

    /// True when the client is our own, which is told what foreign ones have no use for.
    pub(crate) fn is_own_client(&self) -> bool {
        self.conn.client().software_name.as_deref() == Some(OWN_CLIENT)
    }
}

impl Service for Shard {
    fn dispatch(
        self: &Rc<Self>,
        conn: &Rc<ConnState>,
        frame: BytesMut,
        permit: MemoryPermit,
    ) -> Dispatch {
        let (call, body) = match self.judge_header(conn, frame) {
            Ok(judged) => judged,
            Err(verdict) => return verdict.into(),
        };
        match call.key {
            ApiKey::Produce => self.produce(call, body, permit),
            ApiKey::Fetch => judged(self.fetch(call.holding(permit), body)).into(),
            _ => {
                let shard = Rc::clone(self);
                Dispatch::Waits(Box::pin(async move {
                    judged(shard.route_to_handler(call.holding(permit), body).await)
                }))
            }
        }
    }

    fn on_unread(self: &Rc<Self>, unread: Unread) {
        self.pass_on_unread(unread);
    }
}

impl Shard {
    /// What a frame asks for, and its body; or what becomes of it at once.
    fn judge_header(
        &self,
        conn: &Rc<ConnState>,
        frame: BytesMut,
    ) -> Result<(Call, Decoder), Verdict> {
        let (head, mut body) = frame::decode_request_header(frame, |id| conn.note_client_id(id))
            .map_err(|error| refuse(&error))?;
        body.limit_elements(REQUEST_ELEMENTS_MAX);
        let (key, version) = (head.key, head.version);
        self.metrics
            .borrow_mut()
            .apis
            .count_request(key as i16, key.name());
        let call = Call {
            key,
            version,
            correlation_id: head.correlation_id,
            client_id: head.client_id,
            conn: Rc::clone(conn),
            hold: None,
        };
        match served(key) {
            Some(row) if (row.served_from..=row.max).contains(&version) => Ok((call, body)),
            Some(_) if key == ApiKey::ApiVersions => {
                // KIP-511: the answer to a version from the future is in version 0.
                let call = Call { version: 0, ..call };
                Err(answer(call, async {
                    api::api_versions::answer_unsupported()
                }))
            }
            Some(row) => Err(close(
                CloseReason::BadRequest,
                format!(
                    "{} version {version} is not in {}..={}",
                    key.name(),
                    row.min,
                    row.max
                ),
            )),
            None => Err(close(
                CloseReason::BadRequest,
                format!("{} is not served by this release", key.name()),
            )),
        }
    }

    /// One line per API whose answer is one message.
    async fn route_to_handler(
        self: &Rc<Self>,
        call: Call,
        body: Decoder,
    ) -> Result<Verdict, DecodeError> {
        match call.key {
            ApiKey::ListOffsets => self.reply(call, body, api::list_offsets::answer),
            ApiKey::Metadata => self.reply(call, body, api::metadata::answer),
            ApiKey::OffsetFetch => self.reply_growing(call, body, api::offset_fetch::answer),
            ApiKey::FindCoordinator => self.reply(call, body, api::find_coordinator::answer),
            ApiKey::DescribeGroups => self.reply_growing(call, body, api::describe_groups::answer),
            ApiKey::ListGroups => self.reply_growing(call, body, api::list_groups::answer),
            ApiKey::ConsumerGroupDescribe => {
                self.reply_growing(call, body, api::consumer_group_describe::answer)
            }
            ApiKey::DeleteGroups => self.reply(call, body, api::delete_groups::answer),
            ApiKey::OffsetDelete => self.reply(call, body, api::offset_delete::answer),
            ApiKey::SaslHandshake => self.reply(call, body, api::sasl::handshake),
            ApiKey::ApiVersions => self.reply(call, body, api::api_versions::answer),
            ApiKey::CreateTopics => self.reply(call, body, api::create_topics::answer),
            ApiKey::DeleteTopics => self.reply(call, body, api::delete_topics::answer),
            ApiKey::DeleteRecords => self.reply(call, body, api::delete_records::answer),
            ApiKey::InitProducerId => self.reply(call, body, api::init_producer_id::answer),
            ApiKey::OffsetForLeaderEpoch => {
                self.reply(call, body, api::offset_for_leader_epoch::answer)
            }
            ApiKey::DescribeAcls => self.reply(call, body, api::acls::describe),
            ApiKey::CreateAcls => self.reply(call, body, api::acls::create),
            ApiKey::DeleteAcls => self.reply(call, body, api::acls::delete),
            ApiKey::DescribeConfigs => {
                self.reply_growing(call, body, api::describe_configs::answer)
            }
            ApiKey::AlterConfigs => self.reply(call, body, api::alter_configs::answer),
            ApiKey::AlterPartitionReassignments => {
                self.reply(call, body, api::alter_partition_reassignments::answer)
            }
            ApiKey::AlterReplicaLogDirs => {
                self.reply(call, body, api::alter_replica_log_dirs::answer)
            }
            ApiKey::DescribeLogDirs => self.reply(call, body, api::describe_log_dirs::answer),
            ApiKey::SaslAuthenticate => self.reply(call, body, api::sasl::authenticate),
            ApiKey::CreatePartitions => self.reply(call, body, api::create_partitions::answer),
            ApiKey::ElectLeaders => self.reply(call, body, api::elect_leaders::answer),
            ApiKey::IncrementalAlterConfigs => {
                self.reply(call, body, api::incremental_alter_configs::answer)
            }
            ApiKey::ListPartitionReassignments => {
                self.reply(call, body, api::list_partition_reassignments::answer)
            }
            ApiKey::DescribeClientQuotas => {
                self.reply(call, body, api::describe_client_quotas::answer)
            }
            ApiKey::DescribeUserScramCredentials => {
                self.reply(call, body, api::describe_user_scram_credentials::answer)
            }
            ApiKey::DescribeQuorum => self.reply(call, body, api::describe_quorum::answer),
            ApiKey::DescribeProducers => {
                self.reply_growing(call, body, api::describe_producers::answer)
            }
            ApiKey::UpdateFeatures => self.reply(call, body, api::update_features::answer),
            ApiKey::DescribeCluster => self.reply(call, body, api::describe_cluster::answer),
            ApiKey::ListConfigResources => {
                self.reply(call, body, api::list_config_resources::answer)
            }
            ApiKey::DescribeTopicPartitions => {
                self.reply(call, body, api::describe_topic_partitions::answer)
            }
            _ => self.route_in_order(call, body).await,
        }
    }

    /// Those whose order with the others of their connection counts at their coordinator.
    async fn route_in_order(
        self: &Rc<Self>,
        call: Call,
        body: Decoder,
    ) -> Result<Verdict, DecodeError> {
        match call.key {
            ApiKey::OffsetCommit => {
                self.reply_in_order(call, body, api::offset_commit::begin)
                    .await
            }
            ApiKey::JoinGroup => {
                self.reply_in_order(call, body, api::join_group::begin)
                    .await
            }
            ApiKey::Heartbeat => self.reply_in_order(call, body, api::heartbeat::begin).await,
            ApiKey::LeaveGroup => {
                self.reply_in_order(call, body, api::leave_group::begin)
                    .await
            }
            ApiKey::SyncGroup => {
                self.reply_in_order(call, body, api::sync_group::begin)
                    .await
            }
            ApiKey::ConsumerGroupHeartbeat => {
                self.reply_in_order(call, body, api::consumer_group_heartbeat::begin)
                    .await
            }
            // `served` has refused every key that has no arm.
            key => Ok(close(
                CloseReason::BadRequest,
                format!("{} is not served", key.name()),
            )),
        }
    }

    /// Decodes the request, here and now unless it is large, and answers when its handler has ended.
    fn reply<R, F>(
        self: &Rc<Self>,
        call: Call,
        body: Decoder,
        handler: impl FnOnce(Rc<Shard>, Call, R) -> F + 'static,
    ) -> Result<Verdict, DecodeError>
    where
        R: Request + Send + 'static,
        R::Response: Send + 'static,
        F: Future<Output = R::Response> + 'static,
    {
        let shard = Rc::clone(self);
        if !call.is_large() {
            let request = decode(body, call.version)?;
            return Ok(answer(call.clone(), handler(shard, call, request)));
        }
        Ok(Verdict::Answer(Box::pin(async move {
            let _turn = shard.large_turn.take().await;
            let request = match decode_apart(body, call.version).await {
                Ok(request) => request,
                Err(closing) => return Reply::Close(closing),
            };
            let response = handler(Rc::clone(&shard), call.clone(), request).await;
            encode_apart(&call, response).await
        })))
    }

    /// As [`Shard::reply`], for answers that may become far larger than their requests: such a one has its
    /// turn until it is encoded, which is done on another thread.
    fn reply_growing<R, F>(
        self: &Rc<Self>,
        call: Call,
        body: Decoder,
        handler: impl FnOnce(Rc<Shard>, Call, R) -> F + 'static,
    ) -> Result<Verdict, DecodeError>
    where
        R: Request + Send + 'static,
        R::Response: Send + 'static,
        F: Future<Output = Grown<R::Response>> + 'static,
    {
        let shard = Rc::clone(self);
        if call.is_large() {
            let whole =
                |shard, call, request| async { handler(shard, call, request).await.message };
            return self.reply(call, body, whole);
        }
        let request = decode(body, call.version)?;
        Ok(Verdict::Answer(Box::pin(async move {
            let Grown { message, turn } = handler(shard, call.clone(), request).await;
            match turn {
                None => encode(&call, &message),
                Some(_until_encoded) => encode_apart(&call, message).await,
            }
        })))
    }

    /// As [`Shard::reply`], for handlers whose first step has to be taken in the order of the
    /// connection's requests: `begin` ends when it is taken, with the future of the answer.
    async fn reply_in_order<R, B, F>(
        self: &Rc<Self>,
        call: Call,
        body: Decoder,
        begin: impl FnOnce(Rc<Shard>, Call, R) -> B,
    ) -> Result<Verdict, DecodeError>
    where
        R: Request + Send + 'static,
        R::Response: Send + 'static,
        B: Future<Output = F>,
        F: Future<Output = R::Response> + 'static,
    {
        if !call.is_large() {
            let request = decode(body, call.version)?;
            let finish = begin(Rc::clone(self), call.clone(), request).await;
            return Ok(answer(call, finish));
        }
        let turn = self.large_turn.take().await;
        let request = match decode_apart(body, call.version).await {
            Ok(request) => request,
            Err(closing) => return Ok(Verdict::Close(closing)),
        };
        let finish = begin(Rc::clone(self), call.clone(), request).await;
        drop(turn);
        Ok(Verdict::Answer(Box::pin(async move {
            let response = finish.await;
            encode_apart(&call, response).await
        })))
    }

    fn produce(self: &Rc<Self>, call: Call, body: Decoder, permit: MemoryPermit) -> Dispatch {
        let request = match decode(body, call.version) {
            Ok(request) => request,
            Err(error) => return refuse(&error).into(),
        };
        let sorting = api::produce::begin(self, request, call, permit);
        match sorting.is_done() {
            true => produced(sorting.finish()).into(),
            false => Dispatch::Waits(Box::pin(async move { produced(sorting.go_on().await) })),
        }
    }

    fn fetch(self: &Rc<Self>, call: Call, body: Decoder) -> Result<Verdict, DecodeError> {
        let shard = Rc::clone(self);
        if !call.is_large() {
            let request = decode(body, call.version)?;
            return Ok(Verdict::Answer(Box::pin(
                shard.fetched(call, request, None),
            )));
        }
        Ok(Verdict::Answer(Box::pin(async move {
            let turn = shard.large_turn.take().await;
            match decode_apart(body, call.version).await {
                Ok(request) => shard.fetched(call, request, Some(turn)).await,
                Err(closing) => Reply::Close(closing),
            }
        })))
    }

    async fn fetched(
        self: Rc<Self>,
        call: Call,
        request: FetchRequest,
        turn: Option<LargeTurnGuard>,
    ) -> Reply {
        let fetched = api::fetch::answer(self, request, call.version, turn).await;
        let (version, correlation_id) = (call.version, call.correlation_id);
        match frame::encode_response(call.key, version, correlation_id, &fetched.response) {
            Ok(encoded) => {
                let ranges = fetched.plans.into_iter().map(range);
                let response = Response::interleave(encoded, ranges);
                Reply::Send(response.with_account(fetched.account))
            }
            Err(error) => broken(&call, &error),
        }
    }
}

/// What becomes of a produce request whose appends are on their way.
fn produced(mut producing: Producing) -> Verdict {
    if producing.is_silent() {
        task::spawn(async move {
            api::produce::finish_apart(&mut producing).await;
            if api::produce::any_refused(&producing.response) {
                // RP-6: there is no answer to carry the error.
                producing.call.conn.abort(CloseReason::BadRequest);
            }
        });
        return Verdict::Silent;
    }
    // One block whose state is what it captured: passing it on from future to future would
    // keep a copy in each.
    Verdict::Answer(Box::pin(async move {
        api::produce::finish(&mut producing).await;
        encode_with(&producing.call, &producing.response, producing.account())
    }))
}

fn judged(verdict: Result<Verdict, DecodeError>) -> Verdict {
    verdict.unwrap_or_else(|error| refuse(&error))
}

/// Decodes a body. Kafka looks at no bytes behind it, and clients rely on that (BI-7): librdkafka asks
/// for all topics with four zero bytes where flexible versions have one, kafka-go for ACLs with a tag
/// section too many.
fn decode<M: Message>(mut body: Decoder, version: i16) -> Result<M, DecodeError> {
    let message = M::decode(&mut body, version)?;
    body.check()?;
    Ok(message)
}

/// As [`decode`], of a large request: that takes longer than a turn of the core may last.
async fn decode_apart<M>(body: Decoder, version: i16) -> Result<M, Closing>
where
    M: Message + Send + 'static,
{
    match task::compute(move || Ok(decode(body, version))).await {
        Ok(decoded) => decoded.map_err(|error| undecodable(&error)),
        Err(error) => Err(Closing::because(CloseReason::Internal, error.to_string())),
    }
}

/// As [`encode`], of the answer to a large request, which is freed there, too.
async fn encode_apart<M>(call: &Call, response: M) -> Reply
where
    M: Message + Send + 'static,
{
    let (key, version, correlation_id) = (call.key, call.version, call.correlation_id);
    let encoding = move || {
        let encoded = frame::encode_response(key, version, correlation_id, &response);
        Ok(encoded)
    };
    match task::compute(encoding).await {
        Ok(Ok(encoded)) => {
            let response = Response::plain(encoded);
            Reply::Send(response.with_account(account_of(key)))
        }
        Ok(Err(error)) => broken(call, &error),
        Err(error) => broken(call, &error),
    }
}

fn answer<M: Message + 'static>(
    call: Call,
    response: impl Future<Output = M> + 'static,
) -> Verdict {
    Verdict::Answer(Box::pin(async move { encode(&call, &response.await) }))
}

/// What a request of this API waited for, where its handler does not say more.
fn account_of(key: ApiKey) -> Account {
    Account {
        api: key.name(),
        parked: match key {
            // They wait for other members.
            ApiKey::JoinGroup | ApiKey::SyncGroup => Parked::UntilReady,
            _ => Parked::default(),
        },
        ..Account::default()
    }
}

fn encode<M: Message>(call: &Call, response: &M) -> Reply {
    encode_with(call, response, account_of(call.key))
}

fn encode_with<M: Message>(call: &Call, response: &M, account: Account) -> Reply {
    match frame::encode_response(call.key, call.version, call.correlation_id, response) {
        Ok(encoded) => Reply::Send(Response::plain(encoded).with_account(account)),
        Err(error) => broken(call, &error),
    }
}

/// An answer of ours that does not fit its own version: our mistake, and the client must not wait.
fn broken(call: &Call, error: &dyn std::fmt::Display) -> Reply {
    tracing::error!(api = call.key.name(), version = call.version, %error, "answer not encoded");
    Reply::Close(CloseReason::Internal.into())
}

fn refuse(error: &DecodeError) -> Verdict {
    Verdict::Close(undecodable(error))
}

fn undecodable(error: &DecodeError) -> Closing {
    Closing::because(CloseReason::BadRequest, error.to_string())
}

fn close(reason: CloseReason, detail: String) -> Verdict {
    Verdict::Close(Closing::because(reason, detail))
}

fn range(plan: ReadPlan) -> FileRange {
    FileRange {
        file: plan.file,
        position: plan.position,
        len: plan.len,
        heat: match plan.is_hot {
            true => Heat::Hot,
            false => Heat::Unknown,
        },
    }
}
