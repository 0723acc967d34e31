# needs: InitProducerId
# A producer with Java's defaults.
. "$FOREIGN/lib.sh"

new_topic java-idempotent 1
seq 1 100 | kafka_tool ConsoleProducer --bootstrap-server "$BOOTSTRAP" --topic java-idempotent
check_equal "$(seq 1 100)" "$(kcat -b "$BOOTSTRAP" -C -t java-idempotent -e -q)" "records"
