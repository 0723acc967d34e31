# long
# needs: OffsetCommit
# A directory of Kafka's whose metadata log is cut behind a snapshot, as it is after a week, is taken over.
. "$FOREIGN/lib.sh"
[ "$AGAINST" = thalweg ] || exit 0

client() { "$BINARY" "$@" --bootstrap-server "$BOOTSTRAP"; }
METADATA=used/data/__cluster_metadata-0
is_cut() { [ ! -e "$METADATA/00000000000000000000.log" ]; }

AGAINST=kafka start_broker "$WORK/used" \
  metadata.log.max.record.bytes.between.snapshots=100 metadata.log.max.snapshot.interval.ms=2000 \
  metadata.log.segment.ms=2000 metadata.max.retention.ms=1000 metadata.max.retention.bytes=1000 \
  metadata.max.idle.interval.ms=100
client topic create old --partitions 2 --config segment.bytes=1048576 >/dev/null
client topic create gone >/dev/null
seq 1 100 | client produce old
client consume old --group readers --exit-at-end >/dev/null
client topic delete gone >/dev/null
# Kafka looks once a minute for what may go.
tries=1200
until is_cut; do
  [ "$((tries -= 1))" -gt 0 ] || fail "Kafka does not cut its metadata log"
  sleep 0.1
done
client topic create late >/dev/null
seq 101 110 | client produce old
AGAINST=kafka stop_broker

for _ in 1 2; do
  serve_config used/server.properties
  check_equal "$(seq 1 110)" "$(client consume old --exit-at-end | sort -n)" "what Kafka stored"
  check_equal "late old" "$(client topic list | awk 'NR > 1 { print $1 }' | sort | xargs)" "topics"
  client config describe topic old >settings.txt
  check_has settings.txt 'segment.bytes.*1048576'
  client topic create ours >/dev/null
  client topic delete ours >/dev/null
  stop_broker
done
serve_config used/server.properties
check_equal "$(seq 101 110)" "$(client consume old --group readers --exit-at-end | sort -n)" \
  "behind the offsets that were committed to Kafka"
stop_broker
is_cut || fail "the log begins at 0 again"
