# needs: OffsetCommit
# Directories of Kafka's that Thalweg takes over: one that StorageTool has formatted, and one that a
# Kafka of one node has served, with topics, records and committed offsets.
. "$FOREIGN/lib.sh"
[ "$AGAINST" = thalweg ] || exit 0

client() { "$BINARY" "$@" --bootstrap-server "$BOOTSTRAP"; }

port=$(free_port)
BOOTSTRAP=127.0.0.1:$port
cat >server.properties <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:9093
listeners=PLAINTEXT://$BOOTSTRAP,CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
log.dirs=$WORK/formatted
PROPERTIES
kafka_tool kafka.tools.StorageTool format --standalone -t AAAAAAAAQACAAAAAAAAAAA \
  -c server.properties >format.txt 2>&1
[ -e formatted/bootstrap.checkpoint ] || fail "StorageTool leaves no bootstrap.checkpoint any more"
BROKER_LOG="$WORK/log.txt"
trap 'kill -KILL $(jobs -p) 2>/dev/null || true' EXIT
serve_config server.properties
client topic create fresh --partitions 2 >/dev/null
seq 1 100 | client produce fresh
stop_broker
serve_config server.properties
check_equal "$(seq 1 100)" "$(client consume fresh --exit-at-end | sort -n)" "after a restart"
check_has formatted/meta.properties '^cluster.id=AAAAAAAAQACAAAAAAAAAAA$'
stop_broker

AGAINST=kafka start_broker "$WORK/used"
client topic create old --partitions 2 --config segment.bytes=1048576 >/dev/null
seq 1 100 | client produce old --compression lz4
client consume old --group readers --exit-at-end >/dev/null
seq 101 110 | client produce old
AGAINST=kafka stop_broker
serve_config used/server.properties
check_equal "$(seq 1 110)" "$(client consume old --exit-at-end | sort -n)" "what Kafka stored"
check_equal "$(seq 101 110)" "$(client consume old --group readers --exit-at-end | sort -n)" \
  "behind the offsets that were committed to Kafka"
client config describe topic old >settings.txt
check_has settings.txt 'segment.bytes.*1048576'
seq 111 120 | client produce old
stop_broker
serve_config used/server.properties
check_equal "$(seq 1 120)" "$(client consume old --exit-at-end | sort -n)" "Kafka's records and ours"
stop_broker
"$BINARY" inspect --verify used/data >verify.txt || {
  tail -20 verify.txt >&2
  fail "damage in the directory that was taken over"
}
