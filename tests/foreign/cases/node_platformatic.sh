# uses: node
# needs: JoinGroup
# @platformatic/kafka does all steps of a client.
. "$FOREIGN/lib.sh"

client_steps node-platformatic node_client with_platformatic.js
