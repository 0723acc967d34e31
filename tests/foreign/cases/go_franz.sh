# uses: go
# needs: JoinGroup
# franz-go does all steps of a client.
. "$FOREIGN/lib.sh"

client_steps go-franz "$GO_CLIENTS/franz"
