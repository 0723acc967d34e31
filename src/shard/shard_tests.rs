//! One shard with one partition on a real log, without sockets.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use thalweg_config::{BrokerConfig, TopicConfig};
use thalweg_control::{
    AdminRequest, ClusterView, ControlHandle, ControlRequest, DirIndex, Endpoint, OpeningProgress,
    PartitionToOpen,
};
use thalweg_group::{Answer, Ask, Caller};
use thalweg_metadata::names::OFFSETS_TOPIC;
use thalweg_metadata::{Image, Placement, Record};
use thalweg_metrics::CoreMetrics;
use thalweg_net::{Dispatch, Limits, Reply, Service, ShardNet, Verdict};
use thalweg_protocol::messages::describe_configs_request::DescribeConfigsResource;
use thalweg_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use thalweg_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use thalweg_protocol::messages::{
    DescribeConfigsRequest, JoinGroupRequest, ListGroupsRequest, OffsetCommitRequest,
    PartitionRecord, TopicRecord,
};
use thalweg_protocol::records::{BatchBuilder, BatchOptions, BatchSummary, Codec, TimestampType};
use thalweg_protocol::{ErrorCode, Request, frame};
use thalweg_reactor::event::Event;
use thalweg_reactor::net::{Listener, Stream};
use thalweg_reactor::{EngineChoice, Runtime, RuntimeOptions, mailbox, oneshot, task};
use thalweg_replica::{Acks, Isolation};
use thalweg_storage::{DirHealth, LogOptions, QueuedBytes, Recovery, StartKept};
use thalweg_types::limits::{APPEND_QUEUED_BYTES_MAX, SMALL_REQUEST_BYTES_MAX, TURN_ELEMENTS_MAX};
use thalweg_types::{
    BrokerId, ClusterId, LeaderEpoch, ListenerIndex, Offset, PartitionIndex, ShardId, TimestampMs,
    TopicId, TopicPartition, Uuid,
};

use crate::api::find_coordinator::make_sure;
use crate::append_group::{AppendGroup, Appended, Row};
use crate::coordinator::GroupAsk;
use crate::partition::{OpenContext, Partition};
use crate::peer::{AppendAsk, FetchAsk, FetchFound, Park};
use crate::retention;
use crate::shard::{Shard, ShardParts};

const ID: TopicPartition = TopicPartition {
    topic: Uuid([7; 16]),
    partition: PartitionIndex(0),
};

struct Rig {
    shard: Rc<Shard>,
    queued: Rc<QueuedBytes>,
    dir: tempfile::TempDir,
}

fn with_rig<F: Future<Output = ()>>(test: impl FnOnce(Rig) -> F) {
    // A control plane that has stopped.
    with_control(|rig, _| test(rig));
}

fn with_control<F: Future<Output = ()>>(
    test: impl FnOnce(Rig, mailbox::Receiver<ControlRequest>) -> F,
) {
    let runtime = Runtime::new(RuntimeOptions {
        engine: EngineChoice::Plain,
        ..RuntimeOptions::default()
    })
    .expect("a runtime");
    runtime.block_on(async {
        let (requests, asked) = mailbox::channel(1);
        let rig = Rig::new(requests).await;
        test(rig, asked).await;
    });
}

impl Rig {
    async fn new(requests: mailbox::Sender<ControlRequest>) -> Rig {
        let dir = tempfile::tempdir().expect("a directory");
        let config = Arc::new(BrokerConfig::default());
        let metrics = Rc::new(RefCell::new(CoreMetrics::new(0, 1)));
        let (peer, _) = mailbox::channel(1);
        let topic = Record::Topic(TopicRecord {
            name: "t".to_owned(),
            topic_id: ID.topic,
        });
        let (image, _) = Image::default().apply(&[topic]).expect("a new topic");
        let shard = Shard::new(ShardParts {
            id: ShardId(0),
            control: ControlHandle::new(requests, Arc::default()),
            dirs: Arc::new([DirHealth::new(dir.path())]),
            metrics: Rc::clone(&metrics),
            peers: vec![peer],
            view: Arc::new(ClusterView {
                placement: Placement::new(&image, BrokerId(1), 1),
                image: Arc::new(image),
                cluster_id: ClusterId("c".to_owned()),
                config: Arc::clone(&config),
                broker_id: BrokerId(1),
                endpoints: vec![Endpoint {
                    name: "PLAINTEXT".to_owned(),
                    host: "h".to_owned(),
                    port: 1,
                }],
            }),
            config: Arc::clone(&config),
        });
        let options = LogOptions {
            health: Arc::clone(shard.dir(DirIndex(0))),
            ..LogOptions::default()
        };
        let queued = Rc::clone(&options.queued);
        let wanted = PartitionToOpen {
            id: ID,
            topic: "t".to_owned(),
            leader_epoch: LeaderEpoch(0),
            dir: Some(DirIndex(0)),
            opening: Recovery::AfterCleanStop.into(),
            future: None,
        };
        let (topic_config, _) = TopicConfig::resolve(&config, std::iter::empty());
        let context = OpenContext {
            local: BrokerId(1),
            dir: DirIndex(0),
            config: &topic_config,
            options,
            metrics: &metrics,
            failures: &Rc::default(),
            opening: &OpeningProgress::default(),
            unmarked: &Rc::default(),
        };
        let partition = Partition::open(&wanted, context).await.expect("opened");
        shard.insert_partition(partition);
        Rig { shard, queued, dir }
    }

    /// Routes by an image in which the offsets topic is new.
    fn adopt_offsets_topic(&self, topic_id: TopicId, partitions: i32) {
        let topic = Record::Topic(TopicRecord {
            name: OFFSETS_TOPIC.to_owned(),
            topic_id,
        });
        let partition = |partition_id| {
            Record::Partition(PartitionRecord {
                partition_id,
                topic_id,
                replicas: vec![1],
                isr: vec![1],
                leader: 1,
                leader_epoch: 0,
                partition_epoch: 0,
                ..Default::default()
            })
        };
        let partitions = (0..partitions).map(partition);
        let records: Vec<_> = std::iter::once(topic).chain(partitions).collect();
        let (image, _) = Image::default().apply(&records).expect("a new topic");
        let view = self.shard.view();
        self.shard.adopt_view(Arc::new(ClusterView {
            placement: Placement::new(&image, BrokerId(1), 1),
            image: Arc::new(image),
            cluster_id: view.cluster_id.clone(),
            config: Arc::clone(&view.config),
            broker_id: view.broker_id,
            endpoints: view.endpoints.clone(),
        }));
    }

    async fn append(&self) -> Appended {
        let group = AppendGroup::new();
        group.one_more();
        self.shard.append_here(one_record(), Acks::Leader, &group);
        let rows = poll_fn(|cx| group.poll(cx)).await;
        rows.into_iter().next().expect("one row")
    }
}

fn one_record() -> AppendAsk {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    let now = TimestampMs(1_000);
    builder.push(now, None, Some(b"v"), &[]).expect("it fits");
    let uncompressed_bytes = builder.uncompressed_bytes();
    let batch = BytesMut::from(builder.build(Codec::None).expect("built"));
    AppendAsk {
        row: Row::default(),
        id: ID,
        summary: BatchSummary {
            bytes: batch.len(),
            record_count: 1,
            last_offset_delta: 0,
            max_timestamp: now,
            offset_delta_of_max_timestamp: 0,
            timestamp_type: TimestampType::CreateTime,
            codec: Codec::None,
            uncompressed_bytes,
            producer: None,
            is_transactional: false,
            is_control: false,
        },
        batch,
        received: now,
    }
}

fn at_the_end() -> Vec<FetchAsk> {
    vec![FetchAsk {
        slot: 0,
        owner: 0,
        id: ID,
        offset: Offset::ZERO,
        current_leader_epoch: LeaderEpoch::NONE,
        last_fetched_epoch: LeaderEpoch::NONE,
        bytes_max: 1_000,
        isolation: Isolation::ReadUncommitted,
    }]
}

fn park(wake: &Event) -> Park {
    Park {
        id: 9,
        wake: wake.clone(),
        missing_bytes: 1,
        enough_bytes: 1,
    }
}

#[test]
fn bi_35_a_fetch_that_ended_before_its_owner_looked_leaves_nothing_behind() {
    with_rig(|rig| async move {
        let (reply, answer) = oneshot::channel::<Vec<FetchFound>>();
        drop(answer);
        // What the end of the fetch sends; the mailbox is faster than the look.
        rig.shard.unpark_here(9, [ID]);
        let park = Some(park(&Event::new()));
        rig.shard.fetch_for_peer(at_the_end(), park, reply).await;
        assert_eq!(rig.shard.parked_fetches(), 0);
    });
}

#[test]
fn a_stopping_owner_parks_no_fetch() {
    with_rig(|rig| async move {
        let wake = Event::new();
        rig.shard
            .fetch_here(&at_the_end(), Some(&park(&wake)))
            .await;
        assert_eq!(rig.shard.parked_fetches(), 1);
        rig.shard.begin_stop();
        assert!(wake.is_open());
        let found = rig
            .shard
            .fetch_here(&at_the_end(), Some(&park(&wake)))
            .await;
        assert!(found[0].is_urgent(), "answered at once");
        assert_eq!(rig.shard.parked_fetches(), 0);
    });
}

/// A fetch that is answered with what it found has nothing to take back.
#[test]
fn what_is_enough_is_not_waited_for() {
    with_rig(|rig| async move {
        assert!(rig.append().await.result.is_ok());
        let wake = Event::new();
        let found = rig
            .shard
            .fetch_here(&at_the_end(), Some(&park(&wake)))
            .await;
        let bytes = found[0].bytes();
        assert!(bytes > 1);
        assert_eq!(rig.shard.parked_fetches(), 0);
        let more = Park {
            enough_bytes: bytes + 1,
            ..park(&wake)
        };
        rig.shard.fetch_here(&at_the_end(), Some(&more)).await;
        assert_eq!(rig.shard.parked_fetches(), 1);
    });
}

#[test]
fn what_waits_for_a_disk_is_bounded() {
    with_rig(|rig| async move {
        let base = |row: Appended| row.result.map(|placed| placed.base_offset);
        assert_eq!(base(rig.append().await), Ok(Offset(0)));
        assert_eq!(rig.queued.get(), 0, "written is no longer queued");
        // Other logs of the shard, whose disk has stalled.
        rig.queued.add(APPEND_QUEUED_BYTES_MAX);
        assert_eq!(base(rig.append().await), Err(ErrorCode::RequestTimedOut));
        rig.queued.remove(APPEND_QUEUED_BYTES_MAX);
        assert_eq!(base(rig.append().await), Ok(Offset(1)), "nothing is lost");
    });
}

#[test]
fn a_partition_that_is_deleted_is_offline_no_more() {
    with_rig(|rig| async move {
        assert_eq!((rig.shard.led_count(), rig.shard.offline_count()), (1, 0));
        let other = TopicPartition {
            partition: PartitionIndex(1),
            ..ID
        };
        rig.shard
            .mark_offline(other, Some(DirIndex(0)), String::new());
        assert_eq!((rig.shard.led_count(), rig.shard.offline_count()), (1, 1));
        assert_eq!(rig.shard.forget_offline(other), Some(DirIndex(0)));
        assert_eq!((rig.shard.led_count(), rig.shard.offline_count()), (1, 0));
    });
}

/// A copy-on-write disk without a byte left: what is removed all the same is missed at the next start.
#[test]
fn st_20_where_log_starts_hold_nothing_is_removed_until_a_later_look() {
    with_control(|rig, mut asked| async move {
        rig.append().await.result.expect("appended, long ago");
        let segment = rig.dir.path().join("t-0/00000000000000000000.log");
        for (answer, stays) in [
            (Err(ErrorCode::KafkaStorageError), true),
            (Ok(StartKept::Durable), false),
        ] {
            let shard = Rc::clone(&rig.shard);
            let looking = task::spawn(async move { retention::look_through(&shard).await });
            let Some(ControlRequest::Admin(AdminRequest::LogStarts { starts, reply })) =
                asked.recv().await
            else {
                panic!("where its log begins is to be written down first");
            };
            assert_eq!(starts, [(ID, Offset(1))]);
            assert!(segment.exists());
            assert!(reply.send(answer).is_ok());
            looking.await.expect("it ends");
            assert_eq!(segment.exists(), stays, "{answer:?}");
        }
    });
}

fn ask_group(rig: &Rig, ask: Ask) -> oneshot::Receiver<Answer> {
    let (reply, answer) = oneshot::channel();
    rig.shard.coordinators.ask(GroupAsk {
        home: ID,
        caller: Caller {
            client_id: "c".to_owned(),
            client_host: "/h".to_owned(),
            version: 3,
        },
        ask,
        reply,
    });
    answer
}

fn join() -> Ask {
    Ask::Join(JoinGroupRequest {
        group_id: "joined".to_owned(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 60_000,
        protocol_type: "consumer".to_owned(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".to_owned(),
            metadata: Bytes::new(),
        }],
        ..Default::default()
    })
}

fn commit() -> Ask {
    Ask::Commit(OffsetCommitRequest {
        group_id: "committed".to_owned(),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: "t".to_owned(),
            topic_id: ID.topic,
            partitions: vec![OffsetCommitRequestPartition::default()],
        }],
        ..Default::default()
    })
}

#[test]
fn a_closed_coordinator_goes_away_with_its_last_write() {
    with_rig(|rig| async move {
        let partition = rig.shard.partition(ID).expect("there");
        let owners = Rc::strong_count(&partition);
        let (coordinators, config) = (&rig.shard.coordinators, &rig.shard.config);
        coordinators.open(Rc::clone(&partition), config);
        while !matches!(ask_group(&rig, commit()).await, Some(Answer::Commit(answer))
            if answer.topics[0].partitions[0].error_code == 0)
        {
            task::yield_now().await;
        }
        let _joining = ask_group(&rig, join());
        let _committing = ask_group(&rig, commit());
        coordinators.close(ID);
        partition.close().await;
        for _ in 0..10 {
            task::yield_now().await;
        }
        assert_eq!(
            Rc::strong_count(&partition),
            owners,
            "nobody holds it any more"
        );
    });
}

#[test]
fn bi_30_the_task_of_a_connection_is_small() {
    with_rig(|rig| async move {
        let listener = Listener::bind(([127, 0, 0, 1], 0).into()).expect("a port");
        let address = listener.local_addr().expect("an address");
        let stream = Stream::connect(address).await.expect("connected");
        let net = ShardNet::new(Limits::default(), Rc::clone(&rig.shard.metrics));
        let serving = thalweg_net::serve(stream, ListenerIndex(0), rig.shard, net);
        let bytes = size_of_val(&serving);
        assert!(bytes <= 3_000, "{bytes} bytes");
    });
}

/// In how many turns a small request is answered.
async fn turns_of<R: Request>(rig: &Rig, request: &R, version: i16) -> usize {
    let encoded = frame::encode_request(request, version, 1, None).expect("encoded");
    let body = BytesMut::from(&encoded.bytes[4..]);
    let size = u32::try_from(body.len()).expect("small");
    assert!(u64::from(size) < SMALL_REQUEST_BYTES_MAX, "{size} bytes");
    let listener = Listener::bind(([127, 0, 0, 1], 0).into()).expect("a port");
    let address = listener.local_addr().expect("an address");
    let stream = Stream::connect(address).await.expect("connected");
    let net = ShardNet::new(Limits::default(), Rc::clone(&rig.shard.metrics));
    let (shard, of) = (Rc::clone(&rig.shard), Rc::clone(&net));
    let serving = task::spawn(thalweg_net::serve(stream, ListenerIndex(0), shard, of));
    while net.open_connections() == 0 {
        task::yield_now().await;
    }
    let conn = net.connections().remove(0);
    let permit = net.budget().acquire(size).await;
    let Dispatch::Waits(verdict) = rig.shard.dispatch(&conn, body, permit) else {
        panic!("it is routed");
    };
    let Verdict::Answer(mut answer) = verdict.await else {
        panic!("it is answered");
    };
    let mut turns = 0;
    let reply = poll_fn(|cx| {
        turns += 1;
        answer.as_mut().poll(cx)
    });
    assert!(matches!(reply.await, Reply::Send(_)));
    serving.abort();
    turns
}

/// The answer to a small request may be large: others run between its slices.
#[test]
fn bi_8_the_settings_of_many_are_told_in_slices() {
    const SLICES: usize = 20;
    let of_group = |nth: usize| DescribeConfigsResource {
        resource_type: 32,
        resource_name: format!("g{nth}"),
        configuration_keys: None,
    };
    let request = DescribeConfigsRequest {
        resources: (0..SLICES * TURN_ELEMENTS_MAX).map(of_group).collect(),
        ..Default::default()
    };
    with_rig(|rig| async move {
        let turns = turns_of(&rig, &request, 4).await;
        assert!(turns > SLICES, "{turns} turns");
    });
}

#[test]
fn bi_8_coordinators_of_a_core_list_their_groups_in_turns_of_their_own() {
    const COORDINATORS: i32 = 20;
    with_rig(|rig| async move {
        rig.adopt_offsets_topic(Uuid([8; 16]), COORDINATORS);
        let turns = turns_of(&rig, &ListGroupsRequest::default(), 5).await;
        assert!(turns > COORDINATORS as usize, "{turns} turns");
    });
}

/// A request that has made the topic may be under way still: this shard routes by it, and others are opening their
/// partitions.
#[test]
fn a_coordinator_is_told_when_every_shard_has_opened_the_offsets_topic() {
    let made = Uuid([8; 16]);
    with_rig(|rig| async move {
        rig.adopt_offsets_topic(made, 0);
        let (error, _) = make_sure(&rig.shard).await.expect_err("nobody can tell");
        assert_eq!(error, ErrorCode::CoordinatorNotAvailable);
        // A start opens all before anybody can ask.
        let topic = rig.shard.offsets_topic().expect("routed by");
        rig.shard.on_offsets_topic_open(topic);
        assert_eq!(make_sure(&rig.shard).await, Ok(()));
    });
    with_control(|rig, mut asked| async move {
        rig.adopt_offsets_topic(made, 0);
        let shard = Rc::clone(&rig.shard);
        let finding = task::spawn(async move { make_sure(&shard).await });
        let Some(ControlRequest::CreateInternal { reply, .. }) = asked.recv().await else {
            panic!("the control plane knows when all are open");
        };
        assert!(reply.send(Ok(made)).is_ok());
        assert_eq!(finding.await, Some(Ok(())));
        // And from then on without asking.
        drop(asked);
        assert_eq!(make_sure(&rig.shard).await, Ok(()));
        // Another topic is another matter.
        rig.adopt_offsets_topic(Uuid([9; 16]), 0);
        assert!(make_sure(&rig.shard).await.is_err());
    });
}
