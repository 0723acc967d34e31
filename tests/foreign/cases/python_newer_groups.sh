# needs: ConsumerGroupHeartbeat
# librdkafka's consumers of the newer protocol (KIP-848), by name and by pattern, while members come and go.
. "$FOREIGN/lib.sh"

# Each step of a member takes a heartbeat: here often, so that nobody waits seconds for each.
start_broker "$WORK/broker" group.consumer.min.heartbeat.interval.ms=500 \
  group.consumer.heartbeat.interval.ms=500 group.initial.rebalance.delay.ms=500
python_client with_newer_groups.py "$BOOTSTRAP"
stop_broker
