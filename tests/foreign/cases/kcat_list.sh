# TRAP-1, TRAP-3: Debian's kcat (librdkafka 2.0.2) understands who we are, and misses no feature that it finds on
# Kafka: an answer with explicit default tags, or a table without Produce 0, would show here.
. "$FOREIGN/lib.sh"

new_topic kcat-list 3
kcat -b "$BOOTSTRAP" -L >plain.txt
check_has plain.txt '^ 1 brokers:'
check_has plain.txt "broker [0-9]+ at $BOOTSTRAP"
check_has plain.txt 'topic "kcat-list" with 3 partitions'
kcat -b "$BOOTSTRAP" -L -t kcat-list >one.txt
check_has_not one.txt 'rror|nknown|underflow'

kcat -b "$BOOTSTRAP" -L -J | jq -e \
  '.topics[] | select(.topic == "kcat-list") | .partitions | length == 3' >json.txt

kcat -b "$BOOTSTRAP" -L -d feature,protocol >traced.txt 2>trace.txt
check_has trace.txt 'Received ApiVersionResponse'
check_has_not trace.txt 'underflow|parse failure|ERROR'
may_lack='MsgVer1|ThrottleTime'
# librdkafka before 2.11.1 ties LZ4 and SASL to the APIs of groups.
serves FindCoordinator || may_lack+='|BrokerGroupCoordinator|LZ4'
serves JoinGroup || may_lack+='|BrokerBalancedConsumer|Sasl'
serves InitProducerId || may_lack+='|IdempotentProducer'
grep -E 'Disabling feature' trace.txt | grep -vE "Disabling feature ($may_lack)" >lost.txt || true
[ ! -s lost.txt ] || fail "librdkafka gave up features: $(cat lost.txt)"
