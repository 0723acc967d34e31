# Kafka's DumpLogSegments accepts a whole data directory after a clean stop: closed segments, compacted ones, their
# indexes, producer snapshots and the metadata log. It returns normally even when it finds faults, so its words are read.
. "$FOREIGN/lib.sh"

# dump FILES FAULTS OPTION...: the list in the file FILES, in one run, into dump.txt.
dump() {
  local files=$1 faults=$2
  shift 2
  [ -s "$files" ] || fail "there are no files for $*"
  kafka_tool DumpLogSegments --files "$(paste -sd, "$files")" "$@" >dump.txt 2>&1 ||
    fail "DumpLogSegments: $(tail -3 dump.txt)"
  # It reports a first offset other than 0 as following -1, for Kafka's own segments too.
  grep -vE '^ *-1 is followed by' dump.txt >faults.txt || true
  check_has_not faults.txt "$faults"
}
FAULTS='Mismatches|mismatch|out of order|invalid bytes|Exception|corrupt|Could not'

start_broker "$WORK/broker" log.cleaner.backoff.ms=100
real_text text
LONG=0
for codec in none zstd; do
  new_topic "dump-$codec" 1 segment.bytes=1048576 index.interval.bytes=4096
  kcat -b "$BOOTSTRAP" -P -t "dump-$codec" -p 0 -z "$codec" -X linger.ms=20 <text
done

# Half the batches in each codec, 700 keys in turn, every 50th record a tombstone.
new_topic compacted 1 segment.bytes=1048576 index.interval.bytes=4096 cleanup.policy=compact \
  min.cleanable.dirty.ratio=0.01
head -n 40000 text | LC_ALL=C awk '{ print NR % 700 ":" (NR % 50 ? $0 : "") }' >keyed
for codec in none zstd; do
  kcat -b "$BOOTSTRAP" -P -t compacted -p 0 -z "$codec" -K: -Z -X linger.ms=20 \
    -X enable.idempotence=true <keyed
done
# Until all but the active segment is clean: a stop in the middle of a round leaves what it has not come to.
active() { basename "$(find "$DATA/compacted-0" -name '*.log' | sort | tail -1)" .log | sed 's/^0*//'; }
tries=1200 # the cleaner has the lowest priority
until grep -qs "^compacted 0 $(active)\$" "$DATA/cleaner-offset-checkpoint"; do
  [ "$((tries -= 1))" -gt 0 ] || fail "not all is compacted: $(cat "$DATA/cleaner-offset-checkpoint")"
  sleep 0.1
done
stop_broker

find "$DATA" -name '*.log' ! -path '*/__cluster_metadata-0/*' ! -path '*/compacted-0/*' | sort >logs
[ "$(grep -c /dump-none-0/ logs)" -ge 3 ] || fail "only $(grep -c /dump-none-0/ logs) segments"
dump logs "$FAULTS|is followed by" --deep-iteration
for codec in none zstd; do check_has dump.txt "compresscodec: $codec"; done
check_has dump.txt "isvalid: true"
check_has_not dump.txt "isvalid: false"

# Offsets with gaps are what compaction leaves.
find "$DATA/compacted-0" -name '*.log' | sort >compacted
dump compacted "$FAULTS" --deep-iteration
check_has dump.txt "isvalid: true"
check_has_not dump.txt "isvalid: false"
check_has dump.txt "is followed by"
check_has dump.txt "isCompacted|deleteHorizonMs: (OptionalLong\[)?[0-9]"

find "$DATA" \( -name '*.index' -o -name '*.timeindex' -o -name '*.txnindex' -o -name '*.snapshot' \) \
  -size +0 | sort >indexes
grep -q '/compacted-0/.*\.index' indexes || fail "compacted segments have no index"
dump indexes "$FAULTS" --index-sanity-check
check_has dump.txt "producerId: "
dump indexes "$FAULTS" --verify-index-only

for folder in dump-none dump-zstd compacted; do
  check_has "$DATA/$folder-0/partition.metadata" '^topic_id: '
  check_has "$DATA/$folder-0/leader-epoch-checkpoint" '^0 0$'
done

# The metadata log under its decoder shows the topics that were made.
find "$DATA/__cluster_metadata-0" -name '*.log' | sort | head -1 >metadata
dump metadata "$FAULTS|is followed by" --cluster-metadata-decoder
check_has dump.txt 'TOPIC_RECORD.*dump-zstd'
check_has dump.txt 'PARTITION_RECORD'
check_has_not dump.txt 'Error at|skipping|Unable'
