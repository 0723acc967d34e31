# uses: rust
# long
# rskafka does the steps that it can.
. "$FOREIGN/lib.sh"

client_steps rust-rskafka "$RUST_CLIENTS/with_rskafka"
