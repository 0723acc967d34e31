# needs: JoinGroup
# confluent-kafka (a current librdkafka) does all steps of a client.
. "$FOREIGN/lib.sh"

client_steps python-confluent python_client with_confluent_kafka.py
