# Kafka's tool moves a partition to another log directory of its broker, and sees it there.
# needs: AlterReplicaLogDirs
. "$FOREIGN/lib.sh"

mkdir -p "$WORK/broker/one" "$WORK/broker/two"
start_broker "$WORK/broker" "log.dirs=$WORK/broker/one,$WORK/broker/two"
tool() { kafka_tool "$@" --bootstrap-server "$BOOTSTRAP"; }
moves() { tool org.apache.kafka.tools.reassign.ReassignPartitionsCommand "$@"; }
new_topic moved 1

seq 1 2000 >"$WORK/lines.txt"
tool ConsoleProducer --topic moved <"$WORK/lines.txt"
to=one
if [ -d "$WORK/broker/one/moved-0" ]; then to=two; fi
printf '{"version":1,"partitions":[{"topic":"moved","partition":0,"replicas":[1],"log_dirs":["%s"]}]}\n' \
  "$WORK/broker/$to" >"$WORK/moves.json"
moves --reassignment-json-file "$WORK/moves.json" --execute >"$WORK/begun.txt"
check_has "$WORK/begun.txt" 'Successfully started moving log directory'

within 90 "moved-0 is in $to" test -d "$WORK/broker/$to/moved-0"
tool ConsoleProducer --topic moved <"$WORK/lines.txt"
is_over() {
  moves --reassignment-json-file "$WORK/moves.json" --verify >"$WORK/verified.txt" &&
    has "$WORK/verified.txt" 'replica moved-0-1 completed'
}
within 60 "the move is over" is_over
tool LogDirsCommand --describe --topic-list moved >"$WORK/dirs.txt"
check_has "$WORK/dirs.txt" "\"partition\":\"moved-0\"[^]]*],\"error\":null,\"logDir\":\"$WORK/broker/$to\""
tool org.apache.kafka.tools.consumer.ConsoleConsumer --topic moved --from-beginning --max-messages 4000 --timeout-ms 90000 >"$WORK/got.txt"
cat "$WORK/lines.txt" "$WORK/lines.txt" >"$WORK/wanted.txt"
check_same "$WORK/wanted.txt" "$WORK/got.txt" 'the records'
