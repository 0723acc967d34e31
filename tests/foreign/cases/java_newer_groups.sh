# needs: ConsumerGroupHeartbeat
# slow
# Java's consumers of the newer protocol (KIP-848) join, leave and are killed, over a kill of the broker; Kafka's
# ConsumerGroupCommand describes their group, and its decoder reads what the coordinator wrote.
. "$FOREIGN/lib.sh"

# Each step of a member takes a heartbeat: here often, so that nobody waits seconds for each.
start() {
  start_broker "$WORK/broker" group.consumer.min.heartbeat.interval.ms=500 \
    group.consumer.heartbeat.interval.ms=500
}
start
groups() { kafka_tool org.apache.kafka.tools.consumer.group.ConsumerGroupCommand --bootstrap-server "$BOOTSTRAP" "$@"; }
# member FILE OPTION...: a consumer that says what it gets, in the background.
echo auto.commit.interval.ms=200 >consumer.properties
member() {
  start_tool VerifiableConsumer --bootstrap-server "$BOOTSTRAP" --topic java-newer --group-id newer \
    --group-protocol consumer --reset-policy earliest --enable-autocommit --command-config consumer.properties \
    "${@:2}" >"$1" 2>>errors.txt
}
# until_has FILE PATTERN
until_has() {
  local tries=900
  until grep -qE "$2" "$1"; do
    [ "$((tries -= 1))" -gt 0 ] || fail "$1 never has $2: $(tail -5 "$1" errors.txt)"
    sleep 0.1
  done
}
new_topic java-newer 4
seq 1 400 | kcat -b "$BOOTSTRAP" -P -t java-newer -X acks=all

member first.txt
first=$!
until_has first.txt 'records_consumed'
member second.txt --group-remote-assignor range
second=$!
until_has second.txt 'partitions_assigned.*java-newer'
until_has first.txt 'partitions_revoked.*java-newer'
# Two partitions each, once the first one has given up two.
described() { groups --describe --group newer --members --verbose >members.txt 2>>errors.txt; }
are_shared_out() { described && [ "$(grep -cE '^newer .* 2 +[0-9]' members.txt)" = 2 ]; }
within 90 "the partitions are shared out" are_shared_out
is_stable() {
  groups --describe --group newer --state --verbose >state.txt 2>>errors.txt &&
    has state.txt '^newer .* (uniform|range) +Stable .* 2'
}
within 60 "the group is stable" is_stable
groups --list --type consumer >list.txt
check_has list.txt '^newer +Consumer'

# The broker is killed; both go on where they were.
kill_broker
start
seq 401 800 | kcat -b "$BOOTSTRAP" -P -t java-newer -X acks=all
committed() {
  groups --describe --group newer --offsets >offsets.txt 2>>errors.txt &&
    awk '$1 == "newer" { sum += $4 } END { print sum + 0 }' offsets.txt
}
# What was read and not committed before the kill is read again: only what is committed tells that it is over.
all_is_committed() { [ "$(committed)" = 800 ]; }
within 120 "all is read and committed" all_is_committed
# One leaves: the other one has everything.
kill -TERM $first
wait $first || true
has_all() { described && has members.txt '^newer .* 4 +[0-9]'; }
within 90 "one has got all" has_all
kill -TERM $second
wait $second || true
check_equal 800 "$(committed)" "committed in sum"
groups --delete --group newer >gone.txt
check_has gone.txt 'was successful'
stop_broker
if [ "$AGAINST" = thalweg ]; then
  files=$(find "$DATA" -path '*/__consumer_offsets-*' -name '*.log' -size +0 | paste -sd,)
  kafka_tool DumpLogSegments --offsets-decoder --files "$files" >dump.txt 2>&1
  for type in ConsumerGroupMetadata ConsumerGroupMemberMetadata ConsumerGroupTargetAssignmentMember \
    ConsumerGroupTargetAssignmentMetadata ConsumerGroupCurrentMemberAssignment; do
    key=$(case $type in
      ConsumerGroupMetadata) echo 3 ;; ConsumerGroupMemberMetadata) echo 5 ;;
      ConsumerGroupTargetAssignmentMetadata) echo 6 ;; ConsumerGroupTargetAssignmentMember) echo 7 ;;
      ConsumerGroupCurrentMemberAssignment) echo 8 ;;
    esac)
    check_has dump.txt "\"type\":\"$key\""
  done
  check_has_not dump.txt 'Exception|unknown|Could not'
fi
