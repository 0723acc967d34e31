# uses: rust
# needs: JoinGroup
# long
# The rdkafka crate (a current librdkafka) does all steps of a client.
. "$FOREIGN/lib.sh"

client_steps rust-rdkafka "$RUST_CLIENTS/with_rdkafka"
