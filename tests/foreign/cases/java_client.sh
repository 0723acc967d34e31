# needs: JoinGroup
# Kafka's own Java clients do all steps of a client.
. "$FOREIGN/lib.sh"

client_steps java-client java_client WithKafkaClients
