# Kafka's DumpLogSegments accepts closed segments, their indexes and the metadata log. It returns
# normally even when it finds faults, so its words are read.
. "$FOREIGN/lib.sh"

dump() {
  kafka_tool DumpLogSegments --files "$@" >dump.txt 2>&1 || fail "DumpLogSegments: $(tail -3 dump.txt)"
  # It reports a first offset other than 0 as following -1, for Kafka's own segments too.
  grep -vE '^Non-consecutive|^ *-1 is followed by' dump.txt >faults.txt || true
  check_has_not faults.txt 'Mismatches|is followed by|invalid bytes|Exception|corrupt|Could not'
}

start_broker "$WORK/broker"
real_text text
LONG=0
for codec in none zstd; do
  new_topic "dump-$codec" 1 segment.bytes=1048576 index.interval.bytes=4096
  kcat -b "$BOOTSTRAP" -P -t "dump-$codec" -p 0 -z "$codec" -X linger.ms=20 <text
done
stop_broker

for codec in none zstd; do
  folder="$DATA/dump-$codec-0"
  segments=("$folder"/*.log)
  [ "$codec" != none ] || [ "${#segments[@]}" -ge 3 ] || fail "only ${#segments[@]} segments"
  for log in "${segments[@]}"; do
    base=${log%.log}
    dump "$log" --deep-iteration
    check_has dump.txt "compresscodec: $codec"
    check_has dump.txt "isvalid: true"
    check_has_not dump.txt "isvalid: false"
    for index in "$base.index" "$base.timeindex"; do
      if [ -s "$index" ]; then dump "$index" --index-sanity-check; dump "$index" --verify-index-only; fi
    done
  done
  check_has "$folder/partition.metadata" '^topic_id: '
  check_has "$folder/leader-epoch-checkpoint" '^0 0$'
done

# The metadata log under its decoder shows the topics that were made.
metadata=("$DATA"/__cluster_metadata-0/*.log)
dump "${metadata[0]}" --cluster-metadata-decoder
check_has dump.txt 'TOPIC_RECORD.*dump-zstd'
check_has dump.txt 'PARTITION_RECORD'
check_has_not dump.txt 'Error at|skipping|Unable'
