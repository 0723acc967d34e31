# needs: JoinGroup
# kafka-python does all steps of a client.
. "$FOREIGN/lib.sh"

client_steps python-kafka python_client with_kafka_python.py
