# needs: InitProducerId
# A producer with Java's defaults, which is idempotent, over stops and a kill; and Kafka's
# DumpLogSegments on the snapshots of producers that are left.
. "$FOREIGN/lib.sh"

start_broker "$WORK/broker"
new_topic java-idempotent 1 segment.bytes=1048576
produce() {
  seq "$1" "$2" | sed "s/\$/ $(printf '%0100d' 0)/" |
    kafka_tool ConsoleProducer --bootstrap-server "$BOOTSTRAP" --topic java-idempotent
}
produce 1 20000
stop_broker
start_broker "$WORK/broker"
produce 20001 20100
kill_broker
start_broker "$WORK/broker"
produce 20101 20200
kcat -b "$BOOTSTRAP" -C -t java-idempotent -e -q | cut -d' ' -f1 >got.txt
seq 1 20200 >wanted.txt
check_same wanted.txt got.txt "records"
stop_broker

snapshots=("$DATA"/java-idempotent-0/*.snapshot)
[ "${#snapshots[@]}" -ge 2 ] || fail "snapshots: ${snapshots[*]}"
for snapshot in "${snapshots[@]}"; do
  kafka_tool DumpLogSegments --files "$snapshot" >dump.txt 2>&1 || fail "DumpLogSegments: $(tail -3 dump.txt)"
  check_has dump.txt 'producerId: [0-9]+ producerEpoch: 0'
  check_has_not dump.txt 'Exception|corrupt|Could not'
done
# Three producers, each from a block of its own as each life takes one, each with its last batches.
check_equal 3 "$(grep -o 'producerId: [0-9]*' dump.txt | sort -u | wc -l)" "producers"
check_has dump.txt 'lastSequence: 99 lastOffset: 20199'
