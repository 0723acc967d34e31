# needs: JoinGroup
# aiokafka does all steps of a client.
. "$FOREIGN/lib.sh"

client_steps python-aiokafka python_client with_aiokafka.py
