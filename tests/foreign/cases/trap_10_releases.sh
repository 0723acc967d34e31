# uses: go
# TRAP-10: clients that guess a release from the versions that are served guess 4.x.
. "$FOREIGN/lib.sh"

"$PYTHON" - "$BOOTSTRAP" >python.txt <<'PYTHON'
import sys
from kafka import KafkaAdminClient

admin = KafkaAdminClient(bootstrap_servers=sys.argv[1])
print(*admin._manager.broker_version, sep=".")
admin.close()
PYTHON
check_has python.txt '^4\.'

# franz-go goes by the whole table, whose last row comes with the groups of streams.
"$GO_CLIENTS/guess" "$BOOTSTRAP" >go.txt
if serves StreamsGroupHeartbeat; then check_has go.txt '^v4\.'; else check_has go.txt 'v'; fi
