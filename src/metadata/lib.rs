//! Cluster metadata: records in, an immutable [`Image`] out, and the controller's decisions.
//!
//! Owns the records of the metadata log (KRaft's schemas, framed as Kafka frames them), the image
//! that follows from them, what each batch of records changed ([`Delta`]), the decisions that make
//! new records ([`controller`]) and which shard serves which partition ([`Placement`]). Refuses to
//! know where the log lies, how it becomes durable, clocks, sockets and threads; randomness is an
//! argument.
//!
//! # Order of calls
//! Decide -> records -> made durable by the shell -> replay, never the other way round: a decision
//! changes no image. [`controller`] functions take the image and give [`Decision`]s, the shell
//! appends their records to the log, then [`Image::apply`] brings image and delta, then the answer
//! goes out.
//!
//! # Invariants ([`Image::check`])
//! Names and ids of topics are unique and agree; replicas of a partition differ, its leader and its
//! in-sync set are among them; epochs are not negative. Records that would break one are refused by
//! [`Image::apply`], whose input is what a disk held.
//!
//! # Cost
//! An image is a handful of `Arc`s: cloning is cheap, readers keep theirs without a lock. Applying
//! a batch copies the maps it changes (one pointer per topic), not the topics.
//!
//! Start reading at [`Image`], then [`controller`].

mod apply;
pub mod configs;
pub mod controller;
mod delta;
mod describe;
mod directories;
mod image;
pub mod loggers;
pub mod names;
mod placement;
mod quotas;
mod record;

pub use apply::ApplyError;
pub use controller::{Controller, Decision};
pub use delta::Delta;
pub use describe::describe_topic_partitions;
pub use directories::{Directories, DirectoryRoom, ReplicaHome, is_reserved};
pub use image::{Broker, BrokerEndpoint, BrokerFeature, Image, Partition, Resource, Topic};
pub use placement::Placement;
pub use quotas::check_quota_filter;
pub use record::{Record, RecordError};
