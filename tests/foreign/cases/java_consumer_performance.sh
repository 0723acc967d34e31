# needs: JoinGroup
# ConsumerPerformance reads all that ProducerPerformance wrote.
. "$FOREIGN/lib.sh"

new_topic java-consumer-performance 4
count=$((LONG ? 2000000 : 50000))
kafka_tool ProducerPerformance --bootstrap-server "$BOOTSTRAP" --topic java-consumer-performance \
  --num-records $count --record-size 1000 --throughput -1 \
  --command-property enable.idempotence=false acks=1 >speed.txt
kafka_tool ConsumerPerformance --bootstrap-server "$BOOTSTRAP" \
  --topic java-consumer-performance --num-records $count --timeout 90000 --hide-header >got.txt
check_equal $count "$(awk -F', ' 'NF > 5 { print $5 }' got.txt | tail -1)" "records read"
