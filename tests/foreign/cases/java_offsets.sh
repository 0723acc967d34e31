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
check_equal "java-offsets:0:10" "$(offsets --time "$between" --partitions 0)" "by time"
check_equal "java-offsets:0:0" "$(offsets --time -4 --partitions 0)" "local start"
newest=$(offsets --time max-timestamp --partitions 0)
[[ $newest =~ ^java-offsets:0:1[0-4]$ ]] || fail "largest timestamp: $newest"
