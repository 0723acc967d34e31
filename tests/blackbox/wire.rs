//! A connection that says exactly what a test wants to say, and the few requests most tests need.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use bytes::BytesMut;
use thalweg_protocol::messages::{
    CreateTopicsRequest, DeleteTopicsRequest, FetchRequest, FetchResponse, ListOffsetsRequest,
    MetadataRequest, MetadataResponse, ProduceRequest, create_topics_request,
    delete_topics_request, fetch_request, fetch_response, list_offsets_request,
    list_offsets_response, metadata_request, metadata_response, produce_request, produce_response,
};
use thalweg_protocol::{ErrorCode, Records, Request, frame};
use thalweg_types::Uuid;

use crate::broker::{PATIENCE, eventually};

/// The newest version that the codec knows of a request.
pub fn newest<R: Request>() -> i16 {
    *R::VERSIONS.end()
}

/// A topic as a request can name it.
#[derive(Clone, Debug)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: Uuid,
}

/// A blocking connection. Reading waits for [`PATIENCE`].
pub struct Connection {
    stream: TcpStream,
    next_correlation: i32,
}

impl Connection {
    pub fn open(address: SocketAddr) -> Connection {
        let stream = TcpStream::connect(address).expect("the broker listens");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket");
        Connection {
            stream,
            next_correlation: 7,
        }
    }

    /// Writes bytes as they are. The broker may have closed already: that shows when reading.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        if let Err(error) = self.stream.write_all(bytes) {
            let closed = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
            assert!(closed.contains(&error.kind()), "writing: {error}");
        }
    }

    /// Sends a request and returns its correlation id.
    pub fn send<R: Request>(&mut self, request: &R, version: i16) -> i32 {
        let (correlation, bytes) = self.encode(request, version);
        self.send_bytes(&bytes);
        correlation
    }

    /// A request as [`Connection::send`] would send it.
    pub fn encode<R: Request>(&mut self, request: &R, version: i16) -> (i32, Vec<u8>) {
        let correlation = self.next_correlation;
        self.next_correlation += 1;
        let encoded = frame::encode_request(request, version, correlation, Some("blackbox"))
            .expect("the test's request has a form in this version");
        assert!(encoded.gaps.is_empty(), "tests hold their records");
        (correlation, encoded.bytes.to_vec())
    }

    /// Reads one response, which must be the one to `R`.
    pub fn receive<R: Request>(&mut self, version: i16) -> (i32, R::Response) {
        self.receive_or_closed::<R>(version)
            .unwrap_or_else(|| panic!("closed instead of {:?}", R::KEY))
    }

    /// As [`Connection::receive`]; `None` when the broker closed the connection.
    pub fn receive_or_closed<R: Request>(&mut self, version: i16) -> Option<(i32, R::Response)> {
        let frame = self.read_frame()?;
        let decoded = frame::decode_response::<R>(frame, version);
        Some(decoded.unwrap_or_else(|error| panic!("{:?} version {version}: {error}", R::KEY)))
    }

    /// Sends a request and reads its response.
    pub fn call<R: Request>(&mut self, request: &R, version: i16) -> R::Response {
        let sent = self.send(request, version);
        let (got, response) = self.receive::<R>(version);
        assert_eq!(sent, got, "correlation id of {:?}", R::KEY);
        response
    }

    /// The next frame without its size; `None` when the broker closed the connection.
    pub fn read_frame(&mut self) -> Option<BytesMut> {
        let mut size = [0; 4];
        self.read_or_closed(&mut size)?;
        let mut frame = vec![0; usize::try_from(i32::from_be_bytes(size)).expect("a size")];
        self.read_or_closed(&mut frame)?;
        Some(BytesMut::from(&frame[..]))
    }

    fn read_or_closed(&mut self, buffer: &mut [u8]) -> Option<()> {
        match self.stream.read_exact(buffer) {
            Ok(()) => Some(()),
            Err(error) => match error.kind() {
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => None,
                _ => panic!("reading: {error}"),
            },
        }
    }

    /// True when something of an answer has arrived. Does not wait.
    pub fn has_answer(&self) -> bool {
        self.stream.set_nonblocking(true).expect("a socket");
        let seen = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).expect("a socket");
        match seen {
            Ok(bytes) => bytes > 0,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("peeking: {error}"),
        }
    }

    /// Waits until the broker closes the connection; it must say nothing before.
    pub fn assert_closed(&mut self, why: &str) {
        let answer = self.read_frame();
        assert!(
            answer.is_none(),
            "{why}: answered {answer:?} instead of closing"
        );
    }

    /// Says that nothing more will be sent.
    pub fn finish_sending(&mut self) {
        self.stream.shutdown(Shutdown::Write).ok();
    }

    /// Creates a topic and returns what to call it.
    pub fn create_topic(&mut self, name: &str, partitions: i32, configs: &[(&str, &str)]) -> Topic {
        let result = self.try_create_topic(name, partitions, configs);
        assert_eq!(
            error(result.error_code),
            ErrorCode::None,
            "{name}: {:?}",
            result.error_message
        );
        let topic = Topic {
            name: name.to_owned(),
            id: result.topic_id,
        };
        if std::env::var_os("THALWEG_TEST_AGAINST").is_some() {
            self.await_topic(&topic, partitions);
        }
        topic
    }

    /// Kafka answers before its broker has heard of the topic; ours does not.
    fn await_topic(&mut self, topic: &Topic, partitions: i32) {
        let version = newest::<ListOffsetsRequest>();
        for partition in 0..partitions {
            eventually(&topic.name, || {
                let is_there = self.list_offset(topic, partition, -1, version).error_code == 0
                    && self.fetch(topic, partition, 0).error_code == 0;
                is_there.then_some(())
            });
        }
    }

    pub fn try_create_topic(
        &mut self,
        name: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> thalweg_protocol::messages::create_topics_response::CreatableTopicResult {
        let configs =
            configs
                .iter()
                .map(|(key, value)| create_topics_request::CreatableTopicConfig {
                    name: (*key).to_owned(),
                    value: Some((*value).to_owned()),
                });
        let topic = create_topics_request::CreatableTopic {
            name: name.to_owned(),
            num_partitions: partitions,
            replication_factor: 1,
            configs: configs.collect(),
            ..Default::default()
        };
        let request = CreateTopicsRequest {
            topics: vec![topic],
            ..Default::default()
        };
        let response = self.call(&request, newest::<CreateTopicsRequest>());
        response
            .topics
            .into_iter()
            .next()
            .expect("one topic was asked for")
    }

    /// Deletes a topic by name.
    pub fn delete_topic(&mut self, name: &str) -> ErrorCode {
        let topic = delete_topics_request::DeleteTopicState {
            name: Some(name.to_owned()),
            ..Default::default()
        };
        let request = DeleteTopicsRequest {
            topics: vec![topic],
            timeout_ms: 30_000,
            ..Default::default()
        };
        let response = self.call(&request, newest::<DeleteTopicsRequest>());
        error(response.responses[0].error_code)
    }

    /// The newest Metadata for these topics, none of which is made by asking.
    pub fn metadata(&mut self, names: &[&str]) -> MetadataResponse {
        self.call(
            &metadata_request(names, MayCreate::No),
            newest::<MetadataRequest>(),
        )
    }

    /// Leader epoch of a partition.
    pub fn leader_epoch(&mut self, topic: &Topic, partition: i32) -> i32 {
        let response = self.metadata(&[&topic.name]);
        partition_of(&response.topics[0], partition).leader_epoch
    }

    /// Appends `batch` in the newest version and returns the partition's answer.
    pub fn produce(
        &mut self,
        topic: &Topic,
        partition: i32,
        acks: i16,
        batch: Vec<u8>,
    ) -> produce_response::PartitionProduceResponse {
        let version = newest::<ProduceRequest>();
        only(self.call(&produce_request(topic, partition, acks, batch), version))
    }

    /// Appends `batch`, which must succeed, and returns the offset of its first record.
    pub fn append(&mut self, topic: &Topic, partition: i32, batch: Vec<u8>) -> i64 {
        let answer = self.produce(topic, partition, -1, batch);
        assert_eq!(
            error(answer.error_code),
            ErrorCode::None,
            "{:?}",
            answer.error_message
        );
        answer.base_offset
    }

    /// Fetches at once from `offset`, in the newest version.
    pub fn fetch(
        &mut self,
        topic: &Topic,
        partition: i32,
        offset: i64,
    ) -> fetch_response::PartitionData {
        let request = fetch_request(topic, partition, offset);
        single(self.call(&request, newest::<FetchRequest>()))
    }

    /// Offset for a timestamp or one of the special values, in `version`.
    pub fn list_offset(
        &mut self,
        topic: &Topic,
        partition: i32,
        timestamp: i64,
        version: i16,
    ) -> list_offsets_response::ListOffsetsPartitionResponse {
        let asked = list_offsets_request::ListOffsetsPartition {
            partition_index: partition,
            timestamp,
            ..Default::default()
        };
        let topics = vec![list_offsets_request::ListOffsetsTopic {
            name: topic.name.clone(),
            partitions: vec![asked],
        }];
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics,
            ..Default::default()
        };
        let mut response = self.call(&request, version);
        response.topics.remove(0).partitions.remove(0)
    }

    /// The end of a partition as consumers see it.
    pub fn end_offset(&mut self, topic: &Topic, partition: i32) -> i64 {
        let answer = self.list_offset(topic, partition, -1, newest::<ListOffsetsRequest>());
        assert_eq!(error(answer.error_code), ErrorCode::None);
        answer.offset
    }
}

/// May a Metadata request make the topics it names?
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MayCreate {
    Yes,
    No,
}

pub fn metadata_request(names: &[&str], may_create: MayCreate) -> MetadataRequest {
    let topics = names
        .iter()
        .map(|name| metadata_request::MetadataRequestTopic {
            name: Some((*name).to_owned()),
            ..Default::default()
        });
    MetadataRequest {
        topics: Some(topics.collect()),
        allow_auto_topic_creation: may_create == MayCreate::Yes,
        ..Default::default()
    }
}

pub fn partition_of(
    topic: &metadata_response::MetadataResponseTopic,
    partition: i32,
) -> &metadata_response::MetadataResponsePartition {
    let found = topic
        .partitions
        .iter()
        .find(|found| found.partition_index == partition);
    found.unwrap_or_else(|| panic!("no partition {partition} in {topic:?}"))
}

/// One batch for one partition; the topic is named both ways, each version takes its own.
pub fn produce_request(topic: &Topic, partition: i32, acks: i16, batch: Vec<u8>) -> ProduceRequest {
    let data = produce_request::PartitionProduceData {
        index: partition,
        records: Some(Records::Held(BytesMut::from(&batch[..]))),
    };
    let topic = produce_request::TopicProduceData {
        name: topic.name.clone(),
        topic_id: topic.id,
        partition_data: [data].into(),
    };
    ProduceRequest {
        acks,
        timeout_ms: 30_000,
        topic_data: [topic].into(),
        ..Default::default()
    }
}

/// What is there from `offset` on, without waiting.
pub fn fetch_request(topic: &Topic, partition: i32, offset: i64) -> FetchRequest {
    let partition = fetch_request::FetchPartition {
        partition,
        fetch_offset: offset,
        partition_max_bytes: 64 << 20,
        ..Default::default()
    };
    FetchRequest {
        max_wait_ms: 0,
        min_bytes: 0,
        max_bytes: 64 << 20,
        topics: vec![fetch_request::FetchTopic {
            topic: topic.name.clone(),
            topic_id: topic.id,
            partitions: vec![partition],
        }],
        ..Default::default()
    }
}

/// The answer of the only partition that was produced to.
pub fn only(
    response: thalweg_protocol::messages::ProduceResponse,
) -> produce_response::PartitionProduceResponse {
    let mut partitions: Vec<_> = response
        .responses
        .into_iter()
        .flat_map(|topic| topic.partition_responses)
        .collect();
    assert_eq!(partitions.len(), 1);
    partitions.remove(0)
}

/// The answer of the only partition that was fetched.
pub fn single(response: FetchResponse) -> fetch_response::PartitionData {
    assert_eq!(
        error(response.error_code),
        ErrorCode::None,
        "the whole fetch"
    );
    let mut partitions: Vec<_> = response
        .responses
        .into_iter()
        .flat_map(|topic| topic.partitions)
        .collect();
    assert_eq!(partitions.len(), 1);
    partitions.remove(0)
}

/// The error that a number stands for.
pub fn error(code: i16) -> ErrorCode {
    ErrorCode::from_code(code).unwrap_or_else(|| panic!("{code} is no error of Kafka's"))
}
