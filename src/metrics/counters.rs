//! The plain counters and gauges of one core.

/// How a number moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
}

impl Kind {
    /// The word in a `# TYPE` line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        }
    }
}

/// One field of [`Counters`] with what a reader needs to know about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FieldValue {
    /// Metric name.
    pub metric: &'static str,
    /// Help text: one line.
    pub help: &'static str,
    /// Counter or gauge.
    pub kind: Kind,
    /// Its value.
    pub value: u64,
}

/// One line per number keeps field, metric name, help and merge rule together: a field that nobody
/// renders can not exist.
macro_rules! counters {
    ($($kind:ident $field:ident = $metric:literal, $help:literal;)*) => {
        /// Numbers that need no label but the core. Written as plain fields: `c.bytes_in += n`.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $(#[doc = $help] pub $field: u64,)*
        }

        impl Counters {
            /// Adds `other` field by field (gauges too: a sum over cores).
            pub fn merge(&mut self, other: &Counters) {
                $(self.$field = self.$field.saturating_add(other.$field);)*
            }

            /// All fields in the order of their declaration.
            #[must_use]
            pub fn fields(&self) -> Vec<FieldValue> {
                vec![$(FieldValue {
                    metric: $metric,
                    help: $help,
                    kind: Kind::$kind,
                    value: self.$field,
                },)*]
            }
        }
    };
}

counters! {
    Counter cpu_us = "thalweg_core_cpu_microseconds_total", "CPU time of the core's thread; what the kernel does elsewhere for it is left out.";
    Counter bytes_in = "thalweg_network_received_bytes_total", "Bytes of request frames received.";
    Counter bytes_out = "thalweg_network_sent_bytes_total", "Bytes of response frames sent.";
    Counter fetch_bytes_sendfile = "thalweg_fetch_sendfile_bytes_total", "Record bytes sent to consumers by sendfile, without passing through user memory.";
    Counter fetch_bytes_copied = "thalweg_fetch_copied_bytes_total", "Record bytes sent to consumers from user memory.";
    Counter fetch_bytes_cold = "thalweg_fetch_cold_bytes_total", "Record bytes sent to consumers that were not in the page cache and were read by the lane.";
    Counter responses_sent = "thalweg_responses_sent_total", "Responses sent.";
    Counter response_writes = "thalweg_response_writes_total", "Write calls for response bytes; below thalweg_responses_sent_total when small responses leave together.";
    Counter frames_refused = "thalweg_frames_refused_total", "Connections closed for a size prefix outside the limits.";
    Gauge connections_open = "thalweg_connections_open", "Connections open now.";
    Counter connections_accepted = "thalweg_connections_accepted_total", "Connections accepted.";
    Counter accept_backoffs = "thalweg_accept_backoffs_total", "Times the accept loop waited because file handles or memory had run out.";
    Gauge memory_budget_used = "thalweg_request_memory_used_bytes", "Bytes charged to requests that have arrived or are arriving.";
    Gauge memory_budget_limit = "thalweg_request_memory_limit_bytes", "Bytes of requests that may be admitted at once.";
    Counter memory_budget_waits = "thalweg_request_memory_waits_total", "Requests that waited for memory before their connection was read on.";
    Gauge answer_memory_used = "thalweg_response_memory_used_bytes", "Bytes of finished responses in memory that wait for their sockets.";
    Gauge mailbox_depth = "thalweg_mailbox_messages", "Messages waiting in this core's mailbox.";
    Counter cross_core_requests = "thalweg_cross_core_requests_total", "Requests handed to another core.";
    Gauge partitions_led = "thalweg_partitions_led", "Partitions that this core leads.";
    Gauge producers = "thalweg_producers", "Idempotent producers that partitions remember now.";
    Gauge fetches_parked = "thalweg_fetches_parked", "Fetches waiting for records now.";
    Gauge groups_empty = "thalweg_groups_empty", "Groups without members that hold offsets or a generation.";
    Gauge groups_preparing = "thalweg_groups_preparing_rebalance", "Groups whose members join the next generation.";
    Gauge groups_completing = "thalweg_groups_completing_rebalance", "Groups that wait for their leader to share out.";
    Gauge groups_stable = "thalweg_groups_stable", "Groups whose members all have their shares.";
    Gauge groups_assigning = "thalweg_groups_assigning", "Groups of the newer protocol whose partitions are to be shared out anew.";
    Gauge groups_reconciling = "thalweg_groups_reconciling", "Groups of the newer protocol whose members move towards their shares.";
    Gauge groups_dead = "thalweg_groups_dead", "Groups whose deletion is being written.";
    Gauge group_members = "thalweg_group_members", "Members of all groups.";
    Gauge group_offsets = "thalweg_group_offsets", "Committed offsets held.";
    Gauge group_bytes = "thalweg_group_memory_bytes", "Approximate memory of groups, members and offsets.";
    Gauge coordinators_damaged = "thalweg_coordinators_damaged", "Partitions of the offsets topic of which something is damaged and was not loaded.";
    Gauge coordinators_loading = "thalweg_group_coordinators_loading", "Partitions of the offsets topic whose groups are being loaded, or could not be.";
    Counter group_loads = "thalweg_group_loads_total", "Partitions of the offsets topic whose groups were loaded.";
    Counter group_load_ms = "thalweg_group_load_milliseconds_total", "Time from the opening of a partition of the offsets topic until its groups were loaded.";
    Counter group_records_loaded = "thalweg_group_loaded_records_total", "Records of the offsets topic replayed while groups were loaded.";
    Counter offsets_committed = "thalweg_group_offsets_committed_total", "Offsets committed.";
    Counter group_rebalances = "thalweg_group_rebalances_total", "Generations of groups begun.";
    Counter group_members_timed_out = "thalweg_group_members_timed_out_total", "Members removed because their session ended.";
    Counter offsets_expired = "thalweg_group_offsets_expired_total", "Offsets ended because their time was over.";
    Counter groups_expired = "thalweg_groups_expired_total", "Groups ended with their last offset.";
    Counter append_writes = "thalweg_append_writes_total", "Vectored writes to logs.";
    Counter append_batches = "thalweg_append_batches_total", "Record batches written to logs.";
    Counter append_bytes = "thalweg_append_bytes_total", "Record bytes written to logs.";
    Counter produce_retries = "thalweg_produce_retries_total", "Batches of idempotent producers that were in the log already and were not appended again.";
    Counter append_failures = "thalweg_append_failures_total", "Writes to logs that failed.";
    Counter segments_rolled = "thalweg_segments_rolled_total", "Segments closed for size or age.";
    Counter segments_deleted = "thalweg_segments_deleted_total", "Segments deleted for age, size or because the log begins behind them.";
    Counter segments_deleted_bytes = "thalweg_segments_deleted_bytes_total", "Bytes of batches in deleted segments.";
    Counter ack_flushes = "thalweg_log_ack_flushes_total", "Rounds of flushes that acknowledgements waited for (flush.messages=1).";
    Counter zeroed_bytes = "thalweg_log_zeroed_bytes_total", "Zeros written ahead of logs whose acknowledgements wait for the disk, in bytes.";
    Counter flushed_bytes = "thalweg_log_flushed_bytes_total", "Bytes of logs made durable by fdatasync.";
    Gauge unflushed_bytes = "thalweg_log_unflushed_bytes", "Bytes of logs that are written and not known to be on the disk.";
    Counter compactions = "thalweg_compactions_total", "Rounds of compaction that were finished.";
    Counter compaction_failures = "thalweg_compaction_failures_total", "Rounds of compaction that failed and are tried again later.";
    Counter compaction_read_bytes = "thalweg_compaction_read_bytes_total", "Bytes of batches of segments that compaction has written anew.";
    Counter compaction_kept_bytes = "thalweg_compaction_kept_bytes_total", "Bytes of batches that compaction has left of them.";
    Counter compaction_removed_records = "thalweg_compaction_removed_records_total", "Records that compaction has removed.";
    Gauge compaction_debt_bytes = "thalweg_compaction_debt_bytes", "Bytes of batches that wait for compaction, at the last look.";
    Counter scrub_bytes = "thalweg_scrub_bytes_total", "Bytes of closed segments that were read and checked in the background.";
    Counter scrub_segments = "thalweg_scrub_segments_total", "Segments that were checked, each time they were.";
    Counter scrub_damages = "thalweg_scrub_damages_total", "Damaged ranges that were found, each once.";
    Counter scrub_indexes_rebuilt = "thalweg_scrub_indexes_rebuilt_total", "Index files that did not fit their log and were made anew.";
    Counter scrub_snapshots_replaced = "thalweg_scrub_snapshots_replaced_total", "Snapshots of producers that were damaged, and were made anew or removed.";
    Counter scrub_failures = "thalweg_scrub_failures_total", "Segments that could not be read to be checked.";
    Gauge scrub_due_bytes = "thalweg_scrub_due_bytes", "Bytes of closed segments that were not checked within thalweg.log.scrub.interval.ms, at the last look.";
    Gauge quarantined_ranges = "thalweg_quarantined_ranges", "Damaged ranges of segments that are not served.";
    Gauge quarantined_bytes = "thalweg_quarantined_bytes", "Bytes of these ranges.";
    Gauge compaction_uncleanable = "thalweg_compaction_uncleanable_partitions", "Partitions whose damaged segments keep compaction away from them.";
    Counter flushes = "thalweg_log_flushes_total", "fdatasync calls on logs.";
    Counter sendfile_stalls = "thalweg_sendfile_stalls_total", "sendfile calls on the core that took more than 1 ms: the pages were not in memory after all, or the core was taken away.";
    Counter cold_reads = "thalweg_cold_reads_total", "Strides that the lane has read for connections of this core.";
    Counter cold_read_bytes = "thalweg_cold_read_bytes_total", "Bytes of these strides; above thalweg_fetch_cold_bytes_total when slow clients had to give buffers up, and their strides were read again.";
    Counter cold_read_failures = "thalweg_cold_read_failures_total", "Strides that could not be read; each has closed its connection.";
    Gauge cold_reads_waiting = "thalweg_cold_reads_waiting", "Strides that connections of this core wait for now, those included that are being read.";
    Gauge cold_read_oldest_ms = "thalweg_cold_read_oldest_milliseconds", "How long the one of them that was asked for first has been waited for.";
    Counter reactor_ops = "thalweg_reactor_operations_total", "File operations given to the engine.";
    Counter reactor_short_writes = "thalweg_reactor_short_writes_total", "File writes that came back short and were submitted again.";
    Gauge reactor_in_flight = "thalweg_reactor_in_flight", "File operations in flight now.";
    Counter recovery_logs = "thalweg_recovery_logs_total", "Logs recovered at start after an unclean stop.";
    Counter recovery_bytes_scanned = "thalweg_recovery_scanned_bytes_total", "Log bytes checked at start.";
    Counter recovery_bytes_trusted = "thalweg_recovery_trusted_bytes_total", "Log bytes above recovery points not checked at start, because the process was killed and had marked them as written.";
    Counter recovery_torn_tails = "thalweg_recovery_torn_tails_total", "Logs whose torn tail was cut at start.";
    Counter recovery_bytes_cut = "thalweg_recovery_cut_bytes_total", "Bytes cut from torn tails at start.";
    Counter recovery_indexes_rebuilt = "thalweg_recovery_indexes_rebuilt_total", "Index files rebuilt at start.";
    Gauge partitions_offline = "thalweg_partitions_offline", "Partitions that this core refuses to serve because their log is damaged or failed.";
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{Counters, Kind};

    #[test]
    fn names_follow_the_rules() {
        let mut seen = HashSet::new();
        for field in Counters::default().fields() {
            assert!(seen.insert(field.metric), "{} twice", field.metric);
            assert!(field.metric.starts_with("thalweg_"), "{}", field.metric);
            assert!(
                field.help.ends_with('.') && !field.help.contains('\n'),
                "{}",
                field.metric
            );
            assert_eq!(
                field.metric.ends_with("_total"),
                field.kind == Kind::Counter
            );
        }
    }

    #[test]
    fn merge_adds_every_field() {
        let mut one = Counters {
            bytes_in: 3,
            partitions_offline: 1,
            ..Counters::default()
        };
        one.merge(&Counters {
            bytes_in: 4,
            partitions_offline: 2,
            ..Counters::default()
        });
        assert_eq!((one.bytes_in, one.partitions_offline), (7, 3));
    }
}
