# long
# uses: go node
# needs: ConsumerGroupHeartbeat
# Members of librdkafka (confluent-kafka), Java (both protocols), kafka-python, aiokafka, franz-go, Sarama and
# `thalweg consume` share groups for minutes: they join, leave, are killed and stand still, and the broker is killed
# while groups share out. KafkaJS is in a group of its own. Every record is seen in every group, and committed
# positions never move back, as OffsetFetch tells it and as the log has it in the end.
# THALWEG_MIXED_SEED and THALWEG_MIXED_SECONDS set the dice and the time.
. "$FOREIGN/lib.sh"

seed=${THALWEG_MIXED_SEED:-$RANDOM} seconds=${THALWEG_MIXED_SECONDS:-180}
echo "to run it again: THALWEG_MIXED_SEED=$seed THALWEG_MIXED_SECONDS=$seconds tests/foreign/run --long mixed_groups"
settings=(group.initial.rebalance.delay.ms=500 group.consumer.min.session.timeout.ms=6000
  group.consumer.session.timeout.ms=6000 group.consumer.min.heartbeat.interval.ms=500
  group.consumer.heartbeat.interval.ms=500 offsets.topic.num.partitions=8)
start_broker "$WORK/broker" "${settings[@]}"
javac -cp "$JARS/*" -d classes "$FOREIGN/java/Member.java"
export MEMBER_CLASSES="$WORK/classes"
cp "$FOREIGN"/node/{package.json,member.js} .
ln -s "$NODE_CLIENTS/node_modules" node_modules
# Killed with this shell, and its members with it.
PYTHONDONTWRITEBYTECODE=1 setpriv --pdeathsig KILL "$PYTHON" "$FOREIGN/python/mixed_groups.py" \
  "$BOOTSTRAP" "$seconds" "$seed" &
driver=$!
while kill -0 $driver 2>/dev/null; do
  if [ -e kill-the-broker ]; then
    kill_broker
    start_broker "$WORK/broker" "${settings[@]}"
    rm kill-the-broker
  fi
  sleep 0.1
done
wait $driver || fail "see above; the members' own words are in $WORK/members"

stop_broker
for partition in $(seq 0 7); do
  find "$DATA/__consumer_offsets-$partition" -name '*.log' -size +0 | sort | paste -sd, >files.txt
  [ -s files.txt ] || continue
  kafka_tool DumpLogSegments --offsets-decoder --files "$(cat files.txt)" >"dump-$partition.txt" 2>&1
done
python_client committed_in_order.py mixed-groups dump-*.txt
