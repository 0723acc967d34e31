# GetOffsetShell asks for ends, starts, the largest timestamp and a time (RP-98).
. "$FOREIGN/lib.sh"

offsets() { kafka_tool GetOffsetShell --bootstrap-server "$BOOTSTRAP" --topic java-offsets "$@" | sort; }
new_topic java-offsets 2
seq 1 10 | kcat -b "$BOOTSTRAP" -P -t java-offsets -p 0
sleep 0.2
between=$(date +%s%3N)
sleep 0.2
seq 11 15 | kcat -b "$BOOTSTRAP" -P -t java-offsets -p 0

check_equal "$(printf 'java-offsets:0:15\njava-offsets:1:0')" "$(offsets)" "ends"
check_equal "$(printf 'java-offsets:0:0\njava-offsets:1:0')" "$(offsets --time earliest)" "starts"
for time in -1 latest; do check_equal "java-offsets:0:15" "$(offsets --time $time --partitions 0)" "$time"; done
check_equal "java-offsets:0:10" "$(offsets --time "$between" --partitions 0)" "by time"
check_equal "java-offsets:0:0" "$(offsets --time earliest-local --partitions 0)" "local start"
# Nothing is in a remote tier, and nothing waits to get there.
for time in latest-tiered earliest-pending-upload; do
  check_equal "" "$(offsets --time $time --partitions 0)" "$time"
done
check_equal "" "$(offsets --time 99999999999999 --partitions 0)" "a time after all"
newest=$(offsets --time max-timestamp --partitions 0)
[[ $newest =~ ^java-offsets:0:1[0-4]$ ]] || fail "largest timestamp: $newest"
