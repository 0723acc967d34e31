//! Connection and cluster against a scripted broker on a real socket.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::BytesMut;
use thalweg_client::{
    Acks, Advice, ClientError, Cluster, ClusterOptions, ConfigOwner, ConnectOptions, Connection,
    MissingTopic, Outgoing, Producer, ProducerOptions,
};
use thalweg_protocol::messages::api_versions_response::ApiVersion;
use thalweg_protocol::messages::describe_configs_response::DescribeConfigsResult;
use thalweg_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use thalweg_protocol::messages::produce_response::{
    PartitionProduceResponse, TopicProduceResponse,
};
use thalweg_protocol::messages::{
    ApiVersionsResponse, DescribeConfigsResponse, MetadataRequest, MetadataResponse,
    ProduceRequest, ProduceResponse,
};
use thalweg_protocol::records::{crc_matches, records_of};
use thalweg_protocol::{ApiKey, ErrorCode, Message, Records, frame};

/// The broker's end of one connection.
struct Peer(TcpStream);

impl Peer {
    fn accept(listener: &TcpListener) -> Peer {
        Peer(listener.accept().unwrap().0)
    }

    /// One request: its header and the rest of its frame.
    fn request(&mut self) -> (frame::RequestHead<()>, thalweg_protocol::wire::Decoder) {
        let mut size = [0; 4];
        self.0.read_exact(&mut size).unwrap();
        let mut bytes = BytesMut::zeroed(u32::from_be_bytes(size) as usize);
        self.0.read_exact(&mut bytes).unwrap();
        frame::decode_request_header(bytes, |_| Ok(())).unwrap()
    }

    fn answer<M: Message>(&mut self, header: &frame::RequestHead<()>, version: i16, body: &M) {
        let encoded =
            frame::encode_response(header.key, version, header.correlation_id, body).unwrap();
        self.0.write_all(&encoded.bytes).unwrap();
    }

    fn negotiate(&mut self, rows: &[(ApiKey, i16, i16)]) {
        let (header, _) = self.request();
        assert_eq!(header.key, ApiKey::ApiVersions);
        self.answer(&header, header.version, &table(rows));
    }
}

fn table(rows: &[(ApiKey, i16, i16)]) -> ApiVersionsResponse {
    let row = |&(key, min_version, max_version): &(ApiKey, i16, i16)| ApiVersion {
        api_key: key as i16,
        min_version,
        max_version,
    };
    ApiVersionsResponse {
        api_keys: rows.iter().map(row).collect(),
        ..Default::default()
    }
}

const USUAL: [(ApiKey, i16, i16); 3] = [
    (ApiKey::ApiVersions, 0, 4),
    (ApiKey::Metadata, 0, 12),
    (ApiKey::Produce, 0, 12),
];

fn broker(script: impl FnOnce(TcpListener) + Send + 'static) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (address, thread::spawn(move || script(listener)))
}

fn patient() -> ConnectOptions {
    ConnectOptions {
        request_timeout: Duration::from_secs(60),
        ..ConnectOptions::default()
    }
}

#[test]
fn an_old_broker_is_asked_again_in_its_own_version() {
    let (address, peer) = broker(|listener| {
        let mut peer = Peer::accept(&listener);
        let (header, _) = peer.request();
        assert_eq!(header.version, 4);
        let refusal = ApiVersionsResponse {
            error_code: ErrorCode::UnsupportedVersion as i16,
            ..table(&[(ApiKey::ApiVersions, 0, 2)])
        };
        peer.answer(&header, 0, &refusal);
        let (header, _) = peer.request();
        assert_eq!(header.version, 2);
        peer.answer(
            &header,
            2,
            &table(&[(ApiKey::ApiVersions, 0, 2), (ApiKey::Metadata, 1, 5)]),
        );
    });
    let connection = Connection::connect(&address, &patient()).unwrap();
    assert_eq!(connection.version_of::<MetadataRequest>().unwrap(), 5);
    assert!(matches!(
        connection.version_of::<ProduceRequest>(),
        Err(ClientError::Unsupported { .. })
    ));
    peer.join().unwrap();
}

#[test]
fn another_protocol_is_called_by_its_name() {
    for (hello, told) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "a frame of 1397966893 bytes"),
    ] {
        let (address, peer) = broker(move |listener| {
            let mut peer = Peer::accept(&listener);
            peer.request();
            peer.0.write_all(hello).unwrap();
        });
        let error = Connection::connect(&address, &patient()).unwrap_err();
        assert!(error.to_string().contains(told), "{error}");
        peer.join().unwrap();
    }
}

#[test]
fn pipelined_answers_are_received_in_any_order() {
    let (address, peer) = broker(|listener| {
        let mut peer = Peer::accept(&listener);
        peer.negotiate(&USUAL);
        let first = peer.request().0;
        let second = peer.request().0;
        for (header, controller_id) in [(first, 1), (second, 2)] {
            let body = MetadataResponse {
                controller_id,
                ..Default::default()
            };
            peer.answer(&header, header.version, &body);
        }
    });
    let mut connection = Connection::connect(&address, &patient()).unwrap();
    let first = connection.send(&MetadataRequest::default()).unwrap();
    let second = connection.send(&MetadataRequest::default()).unwrap();
    assert_eq!(connection.receive(second).unwrap().controller_id, 2);
    assert_eq!(connection.receive(first).unwrap().controller_id, 1);
    peer.join().unwrap();
}

#[test]
fn garbage_and_silence_and_hanging_up_are_told_apart() {
    let (address, peer) = broker(|listener| {
        let mut peer = Peer::accept(&listener);
        peer.request();
        peer.0.write_all(&[0, 0, 0, 6, 9, 9, 9, 9, 0, 0]).unwrap();
        let mut peer = Peer::accept(&listener);
        peer.request();
        drop(peer);
        let mut peer = Peer::accept(&listener);
        peer.request();
        // Silence until the client gives up.
        let _ = peer.0.read(&mut [0]);
        let mut peer = Peer::accept(&listener);
        peer.request();
        peer.0.write_all(&[0x7f, 0xff, 0xff, 0xff]).unwrap();
    });
    let error = Connection::connect(&address, &patient()).unwrap_err();
    assert!(matches!(error, ClientError::BadAnswer { .. }), "{error}");
    assert_eq!(error.advice(), Advice::GiveUp);
    let error = Connection::connect(&address, &patient()).unwrap_err();
    assert!(matches!(error, ClientError::Closed { .. }), "{error}");
    let impatient = ConnectOptions {
        request_timeout: Duration::from_millis(50),
        ..patient()
    };
    let error = Connection::connect(&address, &impatient).unwrap_err();
    assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
    assert_eq!(error.advice(), Advice::ReconnectAndRetry);
    let error = Connection::connect(&address, &patient()).unwrap_err();
    assert!(matches!(error, ClientError::BadAnswer { .. }), "{error}");
    peer.join().unwrap();
}

#[test]
fn nobody_listening_is_unreachable() {
    // A port of its own could be another test's by now.
    let error = Cluster::connect("127.0.0.1:1", ClusterOptions::default()).unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
}

fn metadata(listener: &TcpListener) -> MetadataResponse {
    let address = listener.local_addr().unwrap();
    let partition = MetadataResponsePartition {
        leader_id: 1,
        leader_epoch: 0,
        core: 3,
        ..Default::default()
    };
    MetadataResponse {
        brokers: vec![MetadataResponseBroker {
            node_id: 1,
            host: address.ip().to_string(),
            port: address.port().into(),
            rack: None,
        }],
        topics: vec![MetadataResponseTopic {
            name: Some("t".to_owned()),
            partitions: vec![partition],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// Answers one produce request; returns the value of its first record.
fn produce(peer: &mut Peer, code: ErrorCode) -> Vec<u8> {
    let (header, mut body) = peer.request();
    let request = ProduceRequest::decode(&mut body, header.version).unwrap();
    let Some(Records::Held(batch)) = &request.topic_data[0].partition_data[0].records else {
        panic!("no records")
    };
    assert!(crc_matches(batch));
    let records = records_of(batch, 1 << 20).unwrap();
    let value = records
        .iter()
        .next()
        .unwrap()
        .unwrap()
        .value
        .unwrap()
        .to_vec();
    let answer = PartitionProduceResponse {
        error_code: code as i16,
        base_offset: if code == ErrorCode::None { 40 } else { -1 },
        ..Default::default()
    };
    let topic = TopicProduceResponse {
        name: "t".to_owned(),
        partition_responses: [answer].into(),
        ..Default::default()
    };
    let body = ProduceResponse {
        responses: [topic].into(),
        ..Default::default()
    };
    peer.answer(&header, header.version, &body);
    value
}

#[test]
fn a_batch_that_a_former_leader_refused_is_sent_again_after_fresh_metadata() {
    let (address, peer) = broker(|listener| {
        let mut first = Peer::accept(&listener);
        first.negotiate(&USUAL);
        let (header, _) = first.request();
        first.answer(&header, header.version, &metadata(&listener));
        let mut leader = Peer::accept(&listener);
        leader.negotiate(&USUAL);
        assert_eq!(
            produce(&mut leader, ErrorCode::NotLeaderOrFollower),
            b"value"
        );
        let (header, _) = first.request();
        assert_eq!(header.key, ApiKey::Metadata);
        first.answer(&header, header.version, &metadata(&listener));
        assert_eq!(produce(&mut leader, ErrorCode::None), b"value");
    });
    let mut cluster = Cluster::connect(&address, ClusterOptions::default()).unwrap();
    let topic = cluster.topic("t", MissingTopic::Refuse).unwrap();
    assert_eq!(topic.partitions[0].core, Some(3));
    let options = ProducerOptions {
        acks: Acks::Leader,
        ..ProducerOptions::default()
    };
    let mut producer = Producer::new(cluster, options);
    producer
        .send(
            "t",
            &Outgoing {
                value: Some(b"value"),
                ..Outgoing::default()
            },
        )
        .unwrap();
    producer.flush().unwrap();
    let deliveries = producer.take_deliveries();
    assert_eq!(deliveries.len(), 1);
    assert_eq!(
        (deliveries[0].base_offset, deliveries[0].records),
        (Some(40), 1)
    );
    peer.join().unwrap();
}

/// With a second partition, whose disk failed.
fn half_led(listener: &TcpListener) -> MetadataResponse {
    let mut told = metadata(listener);
    told.topics[0].partitions.push(MetadataResponsePartition {
        error_code: ErrorCode::LeaderNotAvailable as i16,
        partition_index: 1,
        leader_id: -1,
        ..Default::default()
    });
    told
}

#[test]
fn a_partition_without_leader_keeps_no_record_from_the_others() {
    let (address, peer) = broker(|listener| {
        let mut first = Peer::accept(&listener);
        first.negotiate(&USUAL);
        let (header, _) = first.request();
        first.answer(&header, header.version, &half_led(&listener));
        let mut leader = Peer::accept(&listener);
        leader.negotiate(&USUAL);
        for _ in 0..2 {
            assert_eq!(produce(&mut leader, ErrorCode::None), b"value");
        }
        // Asked again for the other, which still has none.
        while first.0.peek(&mut [0]).is_ok_and(|bytes| bytes > 0) {
            let (header, _) = first.request();
            assert_eq!(header.key, ApiKey::Metadata);
            first.answer(&header, header.version, &half_led(&listener));
        }
    });
    // What the peers answer is there by then on a slow machine, too.
    let options = ClusterOptions {
        retry_for: Duration::from_secs(10),
        ..ClusterOptions::default()
    };
    let cluster = Cluster::connect(&address, options).unwrap();
    let options = ProducerOptions {
        acks: Acks::Leader,
        ..ProducerOptions::default()
    };
    let mut producer = Producer::new(cluster, options);
    let mut send = |partition| {
        let record = Outgoing {
            partition,
            value: Some(b"value"),
            ..Outgoing::default()
        };
        producer.send("t", &record).and_then(|()| producer.flush())
    };
    send(None).unwrap();
    send(Some(0)).unwrap();
    let error = send(Some(1)).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::LeaderNotAvailable));
    assert!(error.to_string().contains("t-1"), "{error}");
    drop(producer);
    peer.join().unwrap();
}

#[test]
fn a_topic_that_does_not_exist_is_not_waited_for() {
    let (address, peer) = broker(|listener| {
        let mut peer = Peer::accept(&listener);
        peer.negotiate(&[(ApiKey::ApiVersions, 0, 4), (ApiKey::DescribeConfigs, 1, 4)]);
        let (header, _) = peer.request();
        let result = DescribeConfigsResult {
            error_code: ErrorCode::UnknownTopicOrPartition as i16,
            ..Default::default()
        };
        let answer = DescribeConfigsResponse {
            results: vec![result],
            ..Default::default()
        };
        peer.answer(&header, header.version, &answer);
        // Nothing comes behind it.
        assert_eq!(peer.0.read(&mut [0]).unwrap(), 0);
    });
    let options = ClusterOptions {
        connect: patient(),
        ..ClusterOptions::default()
    };
    let mut cluster = Cluster::connect(&address, options).unwrap();
    let topic = ConfigOwner::Topic("nowhere".to_owned());
    let error = cluster.describe_configs(&topic).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::UnknownTopicOrPartition));
    drop(cluster);
    peer.join().unwrap();
}

#[test]
fn a_refusal_that_no_retry_mends_is_reported_at_once() {
    let (address, peer) = broker(|listener| {
        let mut first = Peer::accept(&listener);
        first.negotiate(&USUAL);
        let (header, _) = first.request();
        first.answer(&header, header.version, &metadata(&listener));
        let mut leader = Peer::accept(&listener);
        leader.negotiate(&USUAL);
        produce(&mut leader, ErrorCode::MessageTooLarge);
    });
    let cluster = Cluster::connect(&address, ClusterOptions::default()).unwrap();
    let mut producer = Producer::new(cluster, ProducerOptions::default());
    producer
        .send(
            "t",
            &Outgoing {
                value: Some(b"value"),
                ..Outgoing::default()
            },
        )
        .unwrap();
    let error = producer.flush().unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::MessageTooLarge));
    assert!(producer.take_deliveries().is_empty());
    // Nothing is left over.
    producer.flush().unwrap();
    peer.join().unwrap();
}
