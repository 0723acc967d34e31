# confluent-kafka (a current librdkafka): make a topic, produce in every codec, read by assignment,
# look up offsets, delete.
. "$FOREIGN/lib.sh"

python_client with_confluent_kafka.py "$BOOTSTRAP"
