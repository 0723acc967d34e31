# long
# needs: ConsumerGroupHeartbeat
# Kafka's ConsumerGroupCommand in all its forms, on groups of both protocols: list by state and type, describe in every
# view, reset by every specification, dry, executed and from a file, delete-offsets, delete, and what it is refused.
. "$FOREIGN/lib.sh"

start_broker "$WORK/broker" group.initial.rebalance.delay.ms=0
groups() { kafka_tool org.apache.kafka.tools.consumer.group.ConsumerGroupCommand --bootstrap-server "$BOOTSTRAP" "$@"; }
# told FILE ARGUMENT...: what the tool says, whether it likes it or not.
told() { groups "${@:2}" >"$1" 2>&1 || true; }
member() { # GROUP FILE OPTION...
  start_tool VerifiableConsumer --bootstrap-server "$BOOTSTRAP" --topic one --group-id "$1" \
    --reset-policy earliest --enable-autocommit "${@:3}" >"$2" 2>>errors.txt
  local tries=300
  until grep -q records_consumed "$2"; do
    [ "$((tries -= 1))" -gt 0 ] || fail "the member reads nothing: $(tail -3 errors.txt)"
    sleep 0.1
  done
}
new_topic one 2
new_topic two 1
# A day ago and now, by the time that the records say.
for partition in 0 1; do
  seq 1 100 | kcat -b "$BOOTSTRAP" -P -t one -p $partition -X acks=all
done
seq 1 50 | kcat -b "$BOOTSTRAP" -P -t two -X acks=all
sleep 0.05
between=$(date -u +%Y-%m-%dT%H:%M:%S.%3N)
sleep 0.05
seq 51 60 | kcat -b "$BOOTSTRAP" -P -t two -X acks=all

member classic classic.txt --group-instance-id first --session-timeout 6000
classic=$!
member newer newer.txt --group-protocol consumer --group-remote-assignor range
newer=$!
# A group that nobody was ever in begins with a reset.
groups --reset-offsets --group idle --topic one --topic two --to-earliest --execute >idle.txt
check_equal 3 "$(grep -cE '^idle +(one|two) +[01] +0 *$' idle.txt)" "to the earliest"

# List.
check_equal "classic idle newer" "$(groups --list | sort | paste -sd' ')" "all groups"
groups --list --state >states.txt
check_has states.txt '^classic +Stable'
check_has states.txt '^idle +Empty'
check_equal idle "$(groups --list --state empty | awk '$2 == "Empty" { print $1 }')" "by state"
groups --list --type >types.txt
check_has types.txt '^classic +Classic'
check_has types.txt '^newer +Consumer'
check_equal newer "$(groups --list --type consumer --state stable,empty | awk '$1 != "GROUP" { print $1 }')" "by both"

# Describe: every view of every group.
groups --describe --all-groups --members --verbose >members.txt
check_has members.txt '^classic +first.* +first +/127.0.0.1 +[^ ]+ +2 .*one[:(]0,1'
check_has members.txt '^newer +[^ ]+ +/127.0.0.1 +[^ ]+ +2 .*one[:(]0,1'
groups --describe --group newer --members >members.txt
check_has members.txt '^newer .* 2 *$'
groups --describe --all-groups --state --verbose >state.txt
check_has state.txt '^classic .* range +Stable .*1'
check_has state.txt '^newer .* range +Stable .*1'
check_has state.txt '^idle .* Empty .*0'
groups --describe --all-groups --offsets --verbose >offsets.txt
for group in classic newer; do
  check_equal 2 "$(grep -cE "^$group +one +[01] +[-0-9]* *100 +100 +0 .*/127.0.0.1" offsets.txt)" "offsets of $group"
done
check_has offsets.txt '^idle +two +0 +[-0-9]* *0 +60 +60 +- '
told missing.txt --describe --group nobody
check_has missing.txt 'nobody.*(does not exist|not found|GroupIdNotFound)'

# What is in use stays as it is.
told refused.txt --reset-offsets --group classic --topic one --to-earliest --execute
check_has refused.txt 'inactive'
told refused.txt --delete-offsets --group newer --topic one
check_has refused.txt 'GroupSubscribedToTopic|subscribed'
told refused.txt --delete --group classic --group newer
check_equal 2 "$(grep -o 'NonEmptyGroup\|is not empty' refused.txt | wc -l)" "refused: $(cat refused.txt)"
kill -TERM $classic $newer
wait $classic $newer || true
groups --describe --group newer --offsets >offsets.txt
check_equal 2 "$(grep -cE '^newer +one +[01] +[-0-9]* *100 +100 +0' offsets.txt)" "after its members"

# Reset, dry: each specification, and what is beyond the log.
row() { awk -v topic="$1" -v partition="$2" '$2 == topic && $3 == partition { print $NF }' dry.txt; }
dry() { groups --reset-offsets --group idle "$@" >dry.txt; }
for how in '--to-earliest 0' '--to-latest 60' '--to-offset=7 7' '--to-offset=99 60' '--shift-by=5 5' '--shift-by=-5 0' \
  '--shift-by=999 60' "--to-datetime=$between 50" '--by-duration=P1D 0' '--by-duration=PT0S 60' '--to-current 0'; do
  dry --topic two --dry-run "${how% *}"
  check_equal "${how##* }" "$(row two 0)" "${how% *}"
done
dry --topic one:1 --to-latest
check_equal "-100" "$(row one 0)-$(row one 1)" "one partition, and dry unless it is to be executed"
dry --all-topics --to-latest --dry-run
check_equal "100 100 60" "$(row one 0) $(row one 1) $(row two 0)" "all topics"
groups --describe --group idle --offsets >offsets.txt
check_equal 3 "$(grep -cE '^idle .* [01] +[-0-9]* *0 ' offsets.txt)" "nothing has moved"
# From a file that it exported itself.
groups --reset-offsets --group idle --topic one --to-offset 30 --dry-run --export >plan.csv
groups --reset-offsets --group idle --from-file plan.csv --dry-run >dry.txt
check_equal "30 30" "$(row one 0) $(row one 1)" "from a file"
groups --reset-offsets --group idle --topic two --shift-by 20 --execute >moved.txt
check_has moved.txt '^idle +two +0 +20'

# Delete offsets, then groups.
groups --delete-offsets --group idle --topic one:0 --topic two >deleted.txt
check_has deleted.txt '^one +0 +Successful'
check_has deleted.txt '^two +0 +Successful'
groups --describe --group idle --offsets >offsets.txt
check_has offsets.txt '^idle +one +1 '
check_has_not offsets.txt '^idle +(two|one +0) '
told gone.txt --delete --group nobody --group idle
check_has gone.txt 'nobody'
# A static member that stopped counts until its session is over.
tries=10
until groups --delete --all-groups >gone.txt 2>&1 && grep -q 'was successful' gone.txt; do
  [ "$((tries -= 1))" -gt 0 ] || fail "not deleted: $(cat gone.txt)"
done
check_equal "" "$(groups --list)" "groups"
stop_broker
