//! Named workloads. Reports name them, so their numbers may not change silently: add a new one instead.

/// One workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its name in reports.
    pub name: &'static str,
    /// Connections to the broker.
    pub connections: usize,
    /// Requests in flight on each.
    pub in_flight: usize,
    /// Partitions of the topic. Request n of connection c goes to partition (c + n) mod partitions.
    pub partitions: usize,
    /// Bytes of one record's value; keys are null.
    pub record_bytes: usize,
    /// A batch takes as many records as fit in so many bytes, at least one.
    pub batch_bytes: usize,
    /// acks of Produce.
    pub acks: i16,
    /// `partition_max_bytes` of Fetch.
    pub fetch_bytes: usize,
}

/// 1 KB records in 64 KiB batches: the throughput of the write path.
pub const BULK_PRODUCE: Workload = Workload {
    name: "bulk-produce",
    connections: 16,
    in_flight: 4,
    partitions: 16,
    record_bytes: 1_000,
    batch_bytes: 64 * 1024,
    acks: 1,
    fetch_bytes: 1024 * 1024,
};

/// One 1 KB record per request over 64 connections: the cost of a request.
pub const ONE_RECORD: Workload = Workload {
    name: "one-record",
    connections: 64,
    in_flight: 1,
    batch_bytes: 1,
    ..BULK_PRODUCE
};

/// One 1 KB record per request, one request at a time: the latency of a request.
pub const LONE_RECORD: Workload = Workload {
    name: "lone-record",
    connections: 1,
    partitions: 1,
    ..ONE_RECORD
};

/// Reading what lies in the page cache, 1 MiB per answer.
pub const HOT_CONSUME: Workload = Workload {
    name: "hot-consume",
    ..BULK_PRODUCE
};

/// Reading what lies in the page cache, one 64 KiB batch per answer.
pub const HOT_CONSUME_SMALL: Workload = Workload {
    name: "hot-consume-64k",
    fetch_bytes: 64 * 1024,
    ..BULK_PRODUCE
};

/// All of them.
pub const ALL: [&Workload; 5] = [
    &BULK_PRODUCE,
    &ONE_RECORD,
    &LONE_RECORD,
    &HOT_CONSUME,
    &HOT_CONSUME_SMALL,
];

impl Workload {
    /// The workload of that name.
    ///
    /// # Errors
    /// With the list of names.
    pub fn named(name: &str) -> Result<Workload, String> {
        let found = ALL.iter().find(|w| w.name == name).map(|w| (*w).clone());
        let names = || ALL.iter().map(|w| w.name).collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| format!("no workload `{name}`; there are {}", names()))
    }
}
