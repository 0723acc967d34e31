//! A small blocking Kafka client for the command line, `bench` and the tests.
//!
//! This room owns connections, version negotiation, metadata and leader routing, a batching producer,
//! a consumer of assigned partitions and one that is a member of a group, by either protocol. It refuses
//! to know transactions and anything asynchronous: one thread, `std::net`, timeouts by the socket.
//!
//! # Layers, from the bottom
//! 1. [`Connection`]: frames and typed requests over one socket, pipelined in order. Tests of bad input
//!    use its raw side ([`Connection::open`], [`Connection::send_bytes`], [`Connection::read_frame`]).
//! 2. [`Cluster`]: metadata cache, a connection per broker, retries; administrative calls.
//! 3. [`Producer`] and [`Consumer`].
//! 4. [`GroupConsumer`]: the consumer, driven by a machine of `membership.rs`.
//!
//! Every failure is a [`ClientError`], which says what to do next ([`ClientError::advice`]).

mod admin;
mod assignor;
mod cluster;
mod configs;
mod connection;
mod consumer;
mod coordinator;
mod error;
mod group_consumer;
mod group_offsets;
mod groups;
mod log_dirs;
mod membership;
mod partitioner;
mod producer;
mod versions;

pub use admin::{ClusterDescription, CreatedTopic, FoundOffset, NewTopic, OffsetSpec};
pub use assignor::Assignor;
pub use cluster::{Broker, Cluster, ClusterOptions, MissingTopic, Partition, Topic};
pub use configs::{Change, ConfigChange, ConfigOwner, Setting, config_source_name};
pub use connection::{ConnectOptions, Connection, Ticket};
pub use consumer::{Consumer, ConsumerOptions, Fetched, Isolation, OnOutOfRange, Position};
pub use error::{Advice, ClientError, Result};
pub use group_consumer::GroupConsumer;
pub use group_offsets::{ByPartition, CommittedOffset};
pub use groups::{DescribedGroup, GroupFilter, GroupKind, GroupMember, ListedGroup, MemberName};
pub use log_dirs::{LogDirectory, LogInDirectory};
pub use membership::{GroupOptions, GroupProtocol};
pub use partitioner::{Partitioner, Spread, murmur2};
pub use producer::{Acks, Delivery, Idempotence, Outgoing, Producer, ProducerOptions};
pub use versions::ApiTable;
