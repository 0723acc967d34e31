//! Numbers that a running broker keeps about itself, and their Prometheus text form.
//!
//! **Owns** the names, the help texts and the units of every metric. **Refuses to know** threads,
//! clocks, sockets and HTTP: each shard owns one [`CoreMetrics`] and writes to it without atomics or
//! locks; a scrape asks each shard for a clone and renders them together.
//!
//! Order of calls: [`CoreMetrics::new`] on the shard; plain additions to its fields while it runs;
//! [`CoreMetrics::rotate`] about once a minute, so that quantiles speak of the last minute or two;
//! a clone of it into a [`Snapshot`]; [`render_prometheus`].
//!
//! Invariants: counters never go down while a process lives; label values are bounded
//! ([`thalweg_types::limits::METRIC_LABELS_MAX`]); a histogram costs memory only once it was used.
//!
//! Cost: a counter is one addition, a histogram record about 10 ns, the blame for a request a few ns per stage that it
//! was in, a per-topic count one hash.
//!
//! Start reading at [`CoreMetrics`].

mod api;
mod blame;
mod counters;
mod lag;
mod per_core;
mod prometheus;
mod reasons;
mod slow;
mod stage;
mod times;
mod topics;
mod traffic;

pub use crate::api::{ApiCounts, ApiTable};
pub use crate::blame::{Blame, Spent, micros};
pub use crate::counters::{Counters, FieldValue, Kind};
pub use crate::lag::{GroupLag, LagRow};
pub use crate::per_core::{CoreMetrics, Engine, LogDirFacts, ProcessFacts, Snapshot};
pub use crate::prometheus::{CONTENT_TYPE, render_prometheus};
pub use crate::reasons::{Cause, CloseReason, RefuseReason};
pub use crate::slow::{SlowRequest, SlowRequests};
pub use crate::stage::{Stage, StageHistogram};
pub use crate::times::TimeBuckets;
pub use crate::topics::{OTHER_TOPIC, TopicCounts, TopicTable};
pub use crate::traffic::{PartitionTraffic, Traffic};
