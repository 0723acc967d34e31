# A consumer that waits at the end gets a record when it comes, not when its wait is over.
. "$FOREIGN/lib.sh"

new_topic kcat-follows 1
kcat -b "$BOOTSTRAP" -C -t kcat-follows -p 0 -o beginning -c 3 -q -u \
  -X fetch.wait.max.ms=50000 >got.txt &
reader=$!
started=$SECONDS
for word in one two three; do
  echo "$word" | kcat -b "$BOOTSTRAP" -P -t kcat-follows -p 0
done
wait "$reader"
check_equal "$(printf 'one\ntwo\nthree')" "$(cat got.txt)" "what the waiting reader got"
[ $((SECONDS - started)) -lt 40 ] || fail "the reader was woken after $((SECONDS - started)) s"
