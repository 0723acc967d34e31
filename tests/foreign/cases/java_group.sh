# needs: JoinGroup
# slow
# Java's consumers share a topic in a group, and Kafka's ConsumerGroupCommand sees, moves and deletes
# what it committed; a restart and a kill keep it.
. "$FOREIGN/lib.sh"

start_broker "$WORK/broker" group.initial.rebalance.delay.ms=0
groups() { kafka_tool org.apache.kafka.tools.consumer.group.ConsumerGroupCommand --bootstrap-server "$BOOTSTRAP" "$@"; }
consume() {
  kafka_tool org.apache.kafka.tools.consumer.ConsoleConsumer --bootstrap-server "$BOOTSTRAP" \
    --topic java-group --group java --timeout-ms 90000 "$@" 2>>errors.txt
}
new_topic java-group 1
seq 1 300 | kcat -b "$BOOTSTRAP" -P -t java-group -X acks=all

consume --from-beginning --max-messages 100 >first.txt
groups --list >list.txt
check_has list.txt '^java$'
groups --describe --group java >described.txt
check_has described.txt '^java +java-group +0 +100 +300 +200 '
groups --describe --group java --state >state.txt
check_has state.txt '^java .* Empty +0'

# What the tool says of a member while it is there: a consumer that waits for more than there is.
start_tool VerifiableConsumer --bootstrap-server "$BOOTSTRAP" --topic java-group --group-id watched \
  --reset-policy earliest --enable-autocommit >watched.txt 2>>errors.txt
watched=$!
tries=900
until grep -q records_consumed watched.txt; do
  [ "$((tries -= 1))" -gt 0 ] || fail "the member reads nothing: $(tail -3 errors.txt)"
  sleep 0.1
done
groups --describe --group watched --members --verbose >members.txt
check_has members.txt '^watched .*/127.0.0.1 .* 1 .*java-group[:(]0'
groups --describe --group watched --state >state.txt
check_has state.txt '^watched .* range +Stable +1'
! groups --delete --group watched >refused.txt 2>&1 || check_has refused.txt 'is not empty|NotEmpty'
kill -TERM $watched
wait $watched || true
groups --describe --group watched --offsets >offsets.txt
check_has offsets.txt '^watched +java-group +0 +300 +300 +0 '

# The next one goes on where the last one left off, over every kind of restart.
stop_broker
start_broker "$WORK/broker" group.initial.rebalance.delay.ms=0
consume --max-messages 100 >second.txt
kill_broker
start_broker "$WORK/broker" group.initial.rebalance.delay.ms=0
consume --max-messages 100 >third.txt
seq 1 300 >wanted.txt
cat first.txt second.txt third.txt >got.txt
check_same wanted.txt got.txt "three consumers one after the other"

groups --reset-offsets --group java --topic java-group --to-offset 250 --execute >reset.txt
check_has reset.txt '^java +java-group +0 +250'
reset() { groups --reset-offsets --group watched --topic java-group --dry-run "$@" >dry.txt; }
ways=('--shift-by=-100 200' '--to-datetime=2020-01-01T00:00:00.000 0')
[ "$LONG" = 0 ] || ways+=('--to-earliest 0' '--to-latest 300' '--by-duration=P1D 0' '--to-current 300')
for how in "${ways[@]}"; do
  reset "${how% *}"
  check_has dry.txt "^watched +java-group +0 +${how##* } *\$"
done
consume --max-messages 50 >again.txt
check_equal "$(seq 251 300)" "$(cat again.txt)" "after the reset"
groups --delete-offsets --group java --topic java-group >deleted.txt
check_has deleted.txt '^java-group +0 +Successful'
groups --delete --group java --group watched >gone.txt
check_has gone.txt 'was successful'
check_equal "" "$(groups --list)" "groups"
stop_broker
if [ "$AGAINST" = thalweg ]; then
  # Kafka's own decoder reads every record that the coordinator wrote.
  files=$(find "$DATA" -path '*/__consumer_offsets-*' -name '*.log' -size +0 | paste -sd,)
  kafka_tool DumpLogSegments --offsets-decoder --files "$files" >dump.txt 2>&1
  check_has dump.txt '"group":"java","topic":"java-group","partition":0.*"offset":100,'
  check_has dump.txt '"protocolType":"consumer","generation":'
  check_has_not dump.txt 'Exception|unknown|Could not'
fi
