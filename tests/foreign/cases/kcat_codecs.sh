# A real text goes in through kcat in every codec, is stored in that codec (BI-16, TRAP-3), and comes out
# identical.
. "$FOREIGN/lib.sh"

real_text text
# Segments hold little, so that a read crosses many of them.
for codec in "${CODECS[@]}"; do
  topic="kcat-$codec"
  new_topic "$topic" 1 segment.bytes=$((LONG ? 16777216 : 1048576))
  kcat -b "$BOOTSTRAP" -P -t "$topic" -p 0 -z "$codec" -X linger.ms=20 <text
  kcat -b "$BOOTSTRAP" -C -t "$topic" -p 0 -o beginning -e -q -X check.crcs=true >"out-$codec"
  check_same text "out-$codec" "text through $codec"
  # Debian's librdkafka sends plain batches instead of LZ4 to a broker without FindCoordinator.
  if [ "$codec" != lz4 ] || serves FindCoordinator; then
    # A client leaves a batch alone that its codec would make larger.
    stored=$(stored_codecs "$topic")
    check_equal "$codec" "$(sed -E 's/^(none (.+)|(.+) none)$/\2\3/' <<<"$stored")" "codec on disk"
  fi
  rm "out-$codec"
done
