# needs: JoinGroup
# confluent-kafka and kafka-python share one group while members come and go.
. "$FOREIGN/lib.sh"

python_client with_groups.py "$BOOTSTRAP"
