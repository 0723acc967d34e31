//! The control plane: one thread beside the shards for everything that is not per-record work.
//!
//! It owns the metadata log (`__cluster_metadata-0`), the current [`ClusterView`] built from it, the
//! HTTP endpoints and the broker's readiness. It decides nothing about metadata itself (that is
//! `thalweg_metadata`), and it never sees a client's socket or a record batch.
//!
//! Order of calls: [`ReadMetadata::read`] replays the log, [`Controller::start`] writes what a start
//! must record (this broker's registration, raised leader epochs after a crash), the shards are
//! given their first view, and from then on [`Controller::run`] takes one [`ControlRequest`] at a
//! time: decide, append, fdatasync, apply, hand every shard its share, answer.
//!
//! Invariants: a record is durable before any shard sees its effect or any client its answer; a
//! failed append of the metadata log changes nothing that is visible.
//!
//! Start reading at [`Controller`].

mod checkpoints;
mod controller;
mod disks;
mod facts;
mod history;
pub mod http;
mod lag;
mod log_dirs;
mod loggers;
mod losses;
mod metadata_log;
mod offline;
mod progress;
mod readiness;
mod requests;
mod slow;
mod top;
mod unserved;
mod view;

pub use controller::{
    Controller, ControllerSetup, Ended, ReadMetadata, Start, StartError, empty_view,
};
pub use disks::{DiskWatch, Headroom};
pub use facts::Facts;
pub use history::{HistoryAnswer, MemberNames, RebalanceLine};
pub use lag::{Behind, GroupPosition, GroupQuestion, Positioned, Positions};
pub use log_dirs::{DirFound, DirIndex, LogDirs};
pub use loggers::Loggers;
pub use losses::{Loss, Losses};
pub use metadata_log::{MetadataLog, MetadataLogError};
pub use offline::OfflinePartitions;
pub use progress::{OpeningProgress, OpeningSoFar};
pub use readiness::Readiness;
pub use requests::{
    AdminRequest, Applied, ApplyFailure, AutoCreated, ControlHandle, ControlRequest, FutureFound,
    LogProgress, MoveOutcome, NotOpen, PartitionToOpen, QuorumState, Reconfigured, ShardCommand,
    StoppedPartition,
};
pub use slow::{SlowAnswer, SlowLine};
pub use thalweg_metadata::controller::ProducerIdBlock;
pub use top::{CoreLine, LaneLine, PartitionLine, StageLine, TopAnswer, WHOLE_REQUEST};
pub use unserved::{NotMovedLine, OfflineLine, QuarantinedLine, Unserved};
pub use view::{ClusterView, Endpoint};
