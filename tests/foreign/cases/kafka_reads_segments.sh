# long
# A Kafka broker serves our segments as its own, compacted ones too, and believes what they say of producers: same topics
# there, their files replaced by ours.
. "$FOREIGN/lib.sh"

LONG=0
real_text text
LC_ALL=C awk '{ print NR % 700 ":" (NR % 50 ? $0 : "") }' text >keyed

# all_of TOPIC: every record, with its offset and key.
all_of() { kcat -b "$BOOTSTRAP" -C -t "$1" -p 0 -o beginning -e -q -X check.crcs=true -Z -f '%o %k %s\n'; }

start_broker "$WORK/ours" log.cleaner.backoff.ms=100
new_topic moved 1 segment.bytes=1048576
new_topic shrunk 1 segment.bytes=1048576 cleanup.policy=compact min.cleanable.dirty.ratio=0.01
for codec in "${CODECS[@]}"; do
  kcat -b "$BOOTSTRAP" -P -t moved -p 0 -z "$codec" -X enable.idempotence=true <text
  kcat -b "$BOOTSTRAP" -P -t shrunk -p 0 -z "$codec" -K: -Z -X enable.idempotence=true <keyed
done
tries=900 # the cleaner has the lowest priority
# The active segment, which is left alone, may have most of what was sent last.
until all_of shrunk >served && [ "$(wc -l <served)" -lt "$((2 * $(wc -l <keyed)))" ]; do
  [ "$((tries -= 1))" -gt 0 ] || fail "nothing was compacted"
  sleep 0.1
done
stop_broker
start_broker "$WORK/ours" log.cleaner.enable=false
all_of shrunk >served
stop_broker
ours="$DATA"

AGAINST=kafka
start_broker "$WORK/kafka" log.cleaner.enable=false
new_topic moved 1 segment.bytes=1048576
new_topic shrunk 1 segment.bytes=1048576 cleanup.policy=compact min.cleanable.dirty.ratio=0.01
stop_broker
for topic in moved shrunk; do
  find "$DATA/$topic-0" -type f ! -name partition.metadata -delete
  find "$ours/$topic-0" -type f ! -name partition.metadata -exec cp {} "$DATA/$topic-0" \;
done
start_broker "$WORK/kafka"
kcat -b "$BOOTSTRAP" -C -t moved -p 0 -o beginning -e -q -X check.crcs=true >got
for _ in "${CODECS[@]}"; do cat text; done >wanted
check_same wanted got "what Kafka serves of our files"
all_of shrunk >got
check_same served got "what Kafka serves of what we compacted"
# One producer per run of kcat; the snapshot of our stop is whole.
for topic in moved shrunk; do
  check_has "$BROKER_LOG" "partition=$topic-0.*[Ll]oad.*producer.*snapshot"
  check_has_not "$BROKER_LOG" "partition=$topic-0.*(Failed|corrupt|ERROR)"
done
stop_broker

# Kafka goes on compacting where we stopped: the last of each key is the same.
sed -i 's/^log.cleaner.enable=false/log.cleaner.enable=true/' "$WORK/kafka/server.properties"
echo log.cleaner.backoff.ms=100 >>"$WORK/kafka/server.properties"
start_broker "$WORK/kafka"
tries=900
until grep -q '^shrunk 0 ' "$DATA/cleaner-offset-checkpoint" 2>/dev/null; do
  [ "$((tries -= 1))" -gt 0 ] || fail "Kafka compacts nothing of ours"
  sleep 0.1
done
last_of_each() { LC_ALL=C awk '{ last[$2] = $0 } END { for (key in last) print last[key] }' "$1" | LC_ALL=C sort; }
all_of shrunk >got
last_of_each served >wanted
last_of_each got >got.last
check_same wanted got.last "the last of each key after Kafka compacted our segments"
stop_broker
