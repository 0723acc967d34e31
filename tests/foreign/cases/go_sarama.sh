# uses: go
# needs: JoinGroup
# Sarama does all steps of a client.
. "$FOREIGN/lib.sh"

client_steps go-sarama "$GO_CLIENTS/sarama"
