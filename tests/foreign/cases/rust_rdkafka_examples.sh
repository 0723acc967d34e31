# uses: rust
# needs: JoinGroup
# long
# The rdkafka crate's own examples, as its package brings them.
. "$FOREIGN/lib.sh"

package=$(cargo metadata --locked --format-version 1 --manifest-path "$FOREIGN/rust/Cargo.toml" |
  jq -r '.packages[] | select(.name == "rdkafka").manifest_path')
cp -r "$(dirname "$package")" rdkafka
chmod -R u+w rdkafka
CARGO_TARGET_DIR="$THALWEG_CACHE/rust-examples" cargo build --quiet --manifest-path rdkafka/Cargo.toml --locked \
  --example metadata --example simple_producer --example simple_consumer --example at_least_once \
  --example asynchronous_processing
examples="$THALWEG_CACHE/rust-examples/debug/examples"
export RUST_LOG=info

new_topic rdkafka-in 3
new_topic rdkafka-copy 3
new_topic rdkafka-worked 3
"$examples/simple_producer" --brokers "$BOOTSTRAP" --topic rdkafka-in >produced.txt 2>&1
records() { kcat -b "$BOOTSTRAP" -C -t "$1" -o beginning -e -q | sort; }
records rdkafka-in >sent.txt
check_equal 5 "$(wc -l <sent.txt)" "records of simple_producer"
"$examples/metadata" --brokers "$BOOTSTRAP" --topic rdkafka-in >metadata.txt 2>&1
check_has metadata.txt 'Topic: rdkafka-in +Err: None'

# follow NAME ARGUMENT...: starts an example that ends only when it is told to.
follow() {
  "$examples/$1" --brokers "$BOOTSTRAP" --group-id "rdkafka-$1" "${@:2}" >"$1.txt" 2>&1 &
}
# Each reads what comes after it has its partitions, so records are sent until one has arrived.
until_has() { # FILE PATTERN
  local tries=60
  until grep -Eq "$2" "$1"; do
    [ "$((tries -= 1))" -gt 0 ] || check_has "$1" "$2"
    "$examples/simple_producer" --brokers "$BOOTSTRAP" --topic rdkafka-in >>produced.txt 2>&1
    sleep 0.5
  done
  kill -TERM "$3"
  wait "$3" || true
}
follow simple_consumer --topics rdkafka-in
until_has simple_consumer.txt "payload: 'Message [0-4]'" $!
follow at_least_once --input-topic rdkafka-in --output-topics rdkafka-copy
until_has at_least_once.txt 'Offsets committed successfully' $!
records rdkafka-copy | sort -u >copied.txt
[ -s copied.txt ] && [ -z "$(comm -13 sent.txt copied.txt)" ] || fail "at_least_once copied: $(cat copied.txt)"
follow asynchronous_processing --input-topic rdkafka-in --output-topic rdkafka-worked
until_has asynchronous_processing.txt 'Sent: ' $!
