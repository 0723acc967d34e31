# needs: InitProducerId
# TRAP-12: Kafka's VerifiableProducer writes while the broker is killed again and again. What it was
# told is there is there: each value once, at the offset it was told, and without a hole between offsets.
# VerifiableConsumer reads it in the end.
. "$FOREIGN/lib.sh"

start_broker "$WORK/broker" group.initial.rebalance.delay.ms=0
new_topic verifiable 1 segment.bytes=1048576
rounds=$((LONG ? 20 : 4)) rate=500
# Without its own settings the tool does not retry.
cat >producer.properties <<'PROPERTIES'
enable.idempotence=true
retries=2147483647
delivery.timeout.ms=120000
PROPERTIES
start_tool VerifiableProducer --bootstrap-server "$BOOTSTRAP" --topic verifiable --throughput $rate \
  --command-config producer.properties >produced.txt 2>producer-errors.txt
producer=$!

# acknowledged N: until the producer was told of at least N records.
acknowledged() {
  local tries=600
  until [ "$(grep -c producer_send_success produced.txt)" -ge "$1" ]; do
    [ "$((tries -= 1))" -gt 0 ] || fail "no $1 records after a minute"
    kill -0 $producer 2>/dev/null || fail "the producer ended: $(tail -3 producer-errors.txt)"
    sleep 0.1
  done
}

for round in $(seq $rounds); do
  acknowledged $((round * rate))
  kill_broker
  start_broker "$WORK/broker" group.initial.rebalance.delay.ms=0
done
acknowledged $(((rounds + 1) * rate))
kill -TERM $producer
wait $producer || true
check_has_not produced.txt producer_send_error

# Offset and value of what was acknowledged, and of what is there.
told() { jq -r "select(.name == \"$1\") | \"\\(.offset) \\(.value)\"" "$2" | sort -n; }
told producer_send_success produced.txt >acknowledged.txt
sent=$(wc -l <acknowledged.txt)
kafka_tool VerifiableConsumer --bootstrap-server "$BOOTSTRAP" --topic verifiable --group-id verifiable \
  --reset-policy earliest --verbose --max-messages "$sent" >consumed.txt 2>consumer-errors.txt
told record_data consumed.txt >there.txt
check_equal "" "$(comm -23 <(sort acknowledged.txt) <(sort there.txt) | head -3)" "acknowledged, not there"
check_equal "$(seq 0 $((sent - 1)))" "$(cut -d' ' -f1 there.txt)" "offsets"
check_equal "" "$(cut -d' ' -f2 there.txt | sort | uniq -d | head -3)" "values that are there twice"
