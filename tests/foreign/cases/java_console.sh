# ConsoleProducer and ConsoleConsumer carry a text and keys, in every codec.
. "$FOREIGN/lib.sh"

# Plain producers, and a consumer that names its partition: groups are shown by java_group.
produce() {
  kafka_tool ConsoleProducer --bootstrap-server "$BOOTSTRAP" \
    --command-property enable.idempotence=false "$@"
}
consume() {
  kafka_tool org.apache.kafka.tools.consumer.ConsoleConsumer --bootstrap-server "$BOOTSTRAP" \
    --partition 0 --offset earliest --timeout-ms 90000 "$@" 2>errors.txt
}
new_topic java-console 1
head -n 2000 "$ROOT/docs/rules.md" >text
lines=$(wc -l <text)
copies=0
for codec in "${CODECS[@]}"; do
  produce --topic java-console --compression-codec "$codec" <text
  cat text >>wanted.txt
  copies=$((copies + 1))
done
consume --topic java-console --max-messages $((lines * copies)) >got.txt
check_same wanted.txt got.txt "text through every codec"
check_equal "gzip lz4 none snappy zstd" "$(stored_codecs java-console)" "codecs on disk"

new_topic java-console-keys 1
printf 'a:1\nb:2\n' | produce --topic java-console-keys --reader-property parse.key=true \
  --reader-property key.separator=: --command-property acks=1
consume --topic java-console-keys --max-messages 2 --formatter-property print.key=true \
  --formatter-property print.offset=true --formatter-property print.partition=true >keys.txt
printf 'Partition:0\tOffset:0\ta\t1\nPartition:0\tOffset:1\tb\t2\n' >wanted-keys.txt
check_same wanted-keys.txt keys.txt "keys and offsets"
