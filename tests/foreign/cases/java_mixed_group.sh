# needs: JoinGroup
# `thalweg consume` and Java's consumer in one group, with an assignor that carries bytes of its own:
# each record is read by one of the two, whoever leads, and what one leaves the other takes over.
. "$FOREIGN/lib.sh"

consumers=org.apache.kafka.clients.consumer
wait_for() { # PATTERN FILE WHAT
  local tries=900
  until grep -q "$1" "$2"; do
    [ "$((tries -= 1))" -gt 0 ] || fail "$3: $(tail -3 "$2" errors.txt)"
    sleep 0.1
  done
}
mixed() { # ASSIGNOR JAVA_CLASS
  new_topic "mixed-$1" 4
  # A file: its size shows when the first member has joined and reads.
  seq 1 40 | kcat -b "$BOOTSTRAP" -P -t "mixed-$1" -X acks=all
  "$BINARY" consume "mixed-$1" --group "mixed-$1" --assignor "$1" --bootstrap-server "$BOOTSTRAP" >ours.txt 2>>errors.txt &
  local ours=$!
  wait_for . ours.txt "our member reads nothing"
  start_tool VerifiableConsumer --bootstrap-server "$BOOTSTRAP" --topic "mixed-$1" --group-id "mixed-$1" \
    --assignment-strategy "$consumers.$2" --reset-policy earliest --enable-autocommit --verbose >java.txt 2>>errors.txt
  local java=$!
  wait_for '"partitions_assigned".*\[{' java.txt "Java's member has no partitions"
  local tries=900 n=41
  until grep -q '"record_data"' java.txt; do
    [ "$((tries -= 1))" -gt 0 ] || fail "Java's member reads nothing"
    echo "$n" | kcat -b "$BOOTSTRAP" -P -t "mixed-$1" -p "$((n % 4))" -X acks=all
    n=$((n + 1))
  done
  kill -TERM "$ours"
  wait "$ours" || fail "our member ended with $?"
  for partition in 0 1 2 3; do
    echo "last-$partition" | kcat -b "$BOOTSTRAP" -P -t "mixed-$1" -p "$partition" -X acks=all
  done
  for partition in 0 1 2 3; do
    wait_for "last-$partition" java.txt "Java's member does not take over partition $partition"
  done
  kill -TERM "$java"
  wait "$java" || true
  { cat ours.txt; sed -n 's/.*"value":"\([0-9]*\)".*/\1/p' java.txt; } | grep -v last | sort -n | uniq >got.txt
  seq 1 "$((n - 1))" >wanted.txt
  check_same wanted.txt got.txt "records of both members"
}
start_broker "$WORK/broker" group.initial.rebalance.delay.ms=0
[ "$LONG" = 0 ] || mixed sticky StickyAssignor
mixed cooperative-sticky CooperativeStickyAssignor
stop_broker
