# kafka-python: make a topic, produce in every codec, read by assignment, look up offsets, delete.
. "$FOREIGN/lib.sh"

python_client with_kafka_python.py "$BOOTSTRAP"
