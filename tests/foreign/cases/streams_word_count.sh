# long
# uses: streams
# needs: DeleteRecords
# Kafka Streams counts words (at_least_once): it makes its internal topics, empties the one in between, and
# rebuilds its store from its changelog once its local state is deleted; then it is killed, and so is the broker.
. "$FOREIGN/lib.sh"

start_broker "$WORK/broker" group.initial.rebalance.delay.ms=0
javac -cp "$STREAMS_CLIENTS/*" -d classes "$FOREIGN/java/WordCount.java"
new_topic lines 3
new_topic counts 3
seq 1 1000 | awk '{ print "word-" $1 % 7, "word-" $1 % 13, "all" }' >thousand.txt
lines=0
send() {
  kcat -b "$BOOTSTRAP" -P -t lines -X acks=all <thousand.txt
  lines=$((lines + 1000))
}
start_app() {
  java "${JAVA_FLAGS[@]}" -cp "classes:$STREAMS_CLIENTS/*" WordCount "$BOOTSTRAP" "$WORK/state" lines counts \
    >"$1" 2>>errors.txt &
  app=$!
}
stop_app() {
  kill -TERM $app
  wait $app || true
}
# The last count of each word that was told.
read_counts() {
  kcat -b "$BOOTSTRAP" -C -t counts -e -q -f '%k %s\n' | awk '{ last[$1] = $2 } END { for (w in last) print w, last[w] }' |
    sort >counts.txt
}
wanted_counts() {
  awk -v rounds=$((lines / 1000)) '{ for (n = 1; n <= NF; n++) seen[$n] += rounds } END { for (w in seen) print w, seen[w] }' \
    thousand.txt | sort >wanted.txt
}
# until_counted COMPARISON: cmp for what was stopped in order; what was killed may count twice.
until_counted() {
  local tries=240
  wanted_counts
  until read_counts && "$1"; do
    [ "$((tries -= 1))" -gt 0 ] || {
      diff wanted.txt counts.txt >&2 || true
      fail "not all is counted: $(tail -5 errors.txt)"
    }
    kill -0 $app 2>/dev/null || fail "the application ended: $(tail -20 errors.txt)"
    sleep 0.5
  done
}
exactly() { cmp -s wanted.txt counts.txt; }
at_least() {
  [ "$(wc -l <counts.txt)" = "$(wc -l <wanted.txt)" ] &&
    join wanted.txt counts.txt | awk '$3 < $2 { short = 1 } END { exit short }'
}

send
start_app first.txt
until_counted exactly
stop_app
check_has_not first.txt '^restored .* [1-9]'

# Its internal topics are as it asked for them.
topic() { kafka_tool TopicCommand --bootstrap-server "$BOOTSTRAP" --describe --topic "$1" >described.txt; }
topic word-count-counts-changelog
check_has described.txt 'PartitionCount: 3.*cleanup.policy=compact'
topic word-count-counts-repartition
check_has described.txt 'PartitionCount: 3.*cleanup.policy=delete.*retention.ms=-1'
# What is dealt with is deleted from the topic in between.
kafka_tool GetOffsetShell --bootstrap-server "$BOOTSTRAP" --topic word-count-counts-repartition --time earliest >starts.txt
[ "$(awk -F: '{ sum += $3 } END { print sum }' starts.txt)" -gt 0 ] || fail "nothing was deleted: $(cat starts.txt)"

# Without its local state it goes on from what the changelog tells.
rm -r state
send
start_app second.txt
until_counted exactly
check_has second.txt '^restored word-count-counts-changelog-[0-2] [1-9]'

# Killed in the middle, with the broker; at least once, so words may count twice and none is missing.
send
kill -KILL $app
wait $app 2>/dev/null || true
kill_broker
rm -r state
start_broker "$WORK/broker" group.initial.rebalance.delay.ms=0
start_app third.txt
send
kill_broker
start_broker "$WORK/broker" group.initial.rebalance.delay.ms=0
until_counted at_least
check_has third.txt '^restored word-count-counts-changelog-[0-2] [1-9]'
stop_app
stop_broker
