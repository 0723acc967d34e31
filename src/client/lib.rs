//! A small blocking Kafka client for the command line, `bench` and the tests.
//!
//! This room owns connections, version negotiation, metadata and leader routing, a batching producer,
//! and a consumer of assigned partitions. It refuses to know consumer groups, transactions and
//! anything asynchronous: one thread, `std::net`, timeouts by the socket.
//!
//! # Layers, from the bottom
//! 1. [`Connection`]: frames and typed requests over one socket, pipelined in order. Tests of bad input
//!    use its raw side ([`Connection::open`], [`Connection::send_bytes`], [`Connection::read_frame`]).
//! 2. [`Cluster`]: metadata cache, a connection per broker, retries; administrative calls.
//! 3. [`Producer`] and [`Consumer`].
//!
//! Every failure is a [`ClientError`], which says what to do next ([`ClientError::advice`]).

mod admin;
mod cluster;
mod configs;
mod connection;
mod consumer;
mod error;
mod partitioner;
mod producer;
mod versions;

pub use admin::{ClusterDescription, CreatedTopic, FoundOffset, NewTopic, OffsetSpec};
pub use cluster::{Broker, Cluster, ClusterOptions, MissingTopic, Partition, Topic};
pub use configs::{Change, ConfigChange, ConfigOwner, Setting, config_source_name};
pub use connection::{ConnectOptions, Connection, Ticket};
pub use consumer::{Consumer, ConsumerOptions, Fetched, Isolation, OnOutOfRange, Position};
pub use error::{Advice, ClientError, Result};
pub use partitioner::{Partitioner, murmur2};
pub use producer::{Acks, Delivery, Outgoing, Producer, ProducerOptions};
pub use versions::ApiTable;
