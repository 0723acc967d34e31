# uses: go
# needs: JoinGroup
# segmentio's kafka-go does all steps of a client.
. "$FOREIGN/lib.sh"

client_steps go-kafkago "$GO_CLIENTS/kafkago"
