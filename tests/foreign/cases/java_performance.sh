# ProducerPerformance at full speed with each kind of acks; every record arrives.
. "$FOREIGN/lib.sh"

new_topic java-performance 4
count=$((LONG ? 2000000 : 50000))
for acks in 1 all; do
  kafka_tool ProducerPerformance --bootstrap-server "$BOOTSTRAP" --topic java-performance \
    --num-records $count --record-size 1000 --throughput -1 \
    --command-property enable.idempotence=false acks=$acks linger.ms=5 >"speed-$acks.txt"
  check_has "speed-$acks.txt" "^$count records sent"
done
kafka_tool GetOffsetShell --bootstrap-server "$BOOTSTRAP" --topic java-performance >ends.txt
check_equal $((count * 2)) "$(awk -F: '{ sum += $3 } END { print sum }' ends.txt)" "records in all"
