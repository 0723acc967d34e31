//! The named workloads, compiled in, so that the binary finds them from every folder.

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        /// Name and text of each file in `bench/workloads/`.
        pub(crate) const FILES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("workloads/", $name, ".toml")))),*];
    };
}

files![
    "bulk-produce",
    "bulk-1-partition",
    "bulk-256-partitions",
    "bulk-2000-partitions",
    "bulk-10000-partitions",
    "bulk-lz4",
    "bulk-zstd",
    "beside-compaction",
    "catch-up",
    "durable-1-partition",
    "durable-10-partitions",
    "durable-100-partitions",
    "durable-1000-partitions",
    "fan-out-1",
    "fan-out-5",
    "fan-out-20",
    "headline-100b",
    "headline-1-producer",
    "headline-1-producer-acks-0",
    "headline-3-producers",
    "headline-3-producers-acks-0",
    "headline-10-producers",
    "headline-10-producers-acks-0",
    "hot-consume",
    "hot-consume-64k",
    "keyed-100-producers",
    "lone-record",
    "mixed",
    "one-record",
    "one-record-1000",
    "open-bulk-50mb",
    "open-mixed",
    "open-one-record-5k",
    "past-retention",
    "rolling",
    "two-million-writes",
];
