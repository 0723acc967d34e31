# long
# A Kafka broker serves our segments as its own, and believes what they say of producers: same topic
# there, its files replaced by ours.
. "$FOREIGN/lib.sh"

LONG=0
real_text text
start_broker "$WORK/ours"
new_topic moved 1 segment.bytes=1048576
for codec in "${CODECS[@]}"; do
  kcat -b "$BOOTSTRAP" -P -t moved -p 0 -z "$codec" -X enable.idempotence=true <text
done
stop_broker
ours="$DATA/moved-0"

AGAINST=kafka
start_broker "$WORK/kafka"
new_topic moved 1 segment.bytes=1048576
stop_broker
theirs="$DATA/moved-0"
find "$theirs" -type f ! -name partition.metadata -delete
find "$ours" -type f ! -name partition.metadata -exec cp {} "$theirs" \;
start_broker "$WORK/kafka"
kcat -b "$BOOTSTRAP" -C -t moved -p 0 -o beginning -e -q -X check.crcs=true >got
for _ in "${CODECS[@]}"; do cat text; done >wanted
check_same wanted got "what Kafka serves of our files"
# One producer per run of kcat; the snapshot of our stop is whole.
check_has "$BROKER_LOG" 'partition=moved-0.*[Ll]oad.*producer.*snapshot'
check_has_not "$BROKER_LOG" 'partition=moved-0.*(Failed|corrupt|ERROR)'
stop_broker
