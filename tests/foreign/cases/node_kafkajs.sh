# uses: node
# needs: JoinGroup
# KafkaJS, which knows no flexible version, does all steps of a client.
. "$FOREIGN/lib.sh"

client_steps node-kafkajs node_client with_kafkajs.js
