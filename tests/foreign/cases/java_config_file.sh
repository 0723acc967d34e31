# needs: IncrementalAlterConfigs
# A server.properties of Kafka's own, formatted and served; ConfigCommand tells where settings come
# from and changes log levels.
. "$FOREIGN/lib.sh"

port=$(free_port)
cat >server.properties <<PROPERTIES
# as Kafka's sample has it
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$(free_port)
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://127.0.0.1:$port
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
num.network.threads : 3
log.dirs=$WORK/data
num.partitions=2
offsets.topic.replication.factor=1
log.segment.bytes=\\
  536870912
PROPERTIES

BROKER_LOG="$WORK/log.txt"
: >"$BROKER_LOG"
trap 'kill -KILL "${BROKER_PID:-}" 2>/dev/null || true' EXIT
if [ "$AGAINST" = thalweg ]; then
  "$BINARY" format --standalone -t AAAAAAAAQACAAAAAAAAAAA -c server.properties >format.txt
  serve_config server.properties
else
  kafka_tool kafka.tools.StorageTool format --standalone -t AAAAAAAAQACAAAAAAAAAAA \
    -c server.properties >format.txt 2>&1
  java -Xmx512m -XX:+UseSerialGC -Dorg.slf4j.simpleLogger.defaultLogLevel=info -cp "$JARS/*" \
    kafka.Kafka server.properties >>"$BROKER_LOG" 2>&1 &
  BROKER_PID=$!
  wait_for_line 'Kafka Server started' 120
fi
check_has data/meta.properties '^cluster.id=AAAAAAAAQACAAAAAAAAAAA$'

config() { kafka_tool kafka.admin.ConfigCommand --bootstrap-server "127.0.0.1:$port" "$@"; }

config --describe --entity-type brokers --entity-name 1 --all >all.txt
check_has all.txt 'num.partitions=2 .*STATIC_BROKER_CONFIG:num.partitions=2, DEFAULT_CONFIG:num.partitions=1'
check_has all.txt 'log.segment.bytes=536870912 .*STATIC_BROKER_CONFIG:log.segment.bytes=536870912'
check_has all.txt "log.dirs=$WORK/data "

# Kafka has broker loggers only with log4j beneath, which the tools here do without.
[ "$AGAINST" = thalweg ] || exit 0
config --alter --entity-type broker-loggers --entity-name 1 --add-config thalweg_storage=DEBUG >alter.txt
check_has alter.txt 'Completed updating config for broker-logger 1'
config --describe --entity-type broker-loggers --entity-name 1 >loggers.txt
check_has loggers.txt 'thalweg_storage=DEBUG '
check_has loggers.txt 'root=INFO '
config --alter --entity-type broker-loggers --entity-name 1 --delete-config thalweg_storage >>alter.txt
! config --alter --entity-type broker-loggers --entity-name 1 --add-config no.such=INFO >refused.txt 2>&1 ||
  fail "a logger that does not exist was taken"
check_has "$BROKER_LOG" 'log level changed'
stop_broker
