# needs: ConsumerGroupHeartbeat
# librdkafka's consumers of the newer protocol (KIP-848), by name and by pattern, while members come and go.
. "$FOREIGN/lib.sh"

python_client with_newer_groups.py "$BOOTSTRAP"
