# Helpers for the cases: brokers of either kind, Kafka's tools, comparisons. Sourced by each case.
#
# From the runner: ROOT, FOREIGN, AGAINST (thalweg or kafka), BINARY, SHARDS, LONG (0 or 1), JARS,
# PYTHON, GO_CLIENTS, NODE_CLIENTS, RUST_CLIENTS (folders), OLD_JAVA_CLIENTS (folders, one per line), WORK (an empty
# folder of this case), PORTS (a folder),
# CLASS_ARCHIVE (of archive_classes, or not set), and for the shared broker BOOTSTRAP and DATA.

set -euo pipefail

JAVA_FLAGS=(-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx512m
  -Dorg.slf4j.simpleLogger.defaultLogLevel=warn)
# What Java says of an archive that it can not use would be in the output of the tools.
[ -z "${CLASS_ARCHIVE:-}" ] || JAVA_FLAGS+=("-XX:SharedArchiveFile=$CLASS_ARCHIVE" -Xlog:disable)
CODECS=(none gzip snappy lz4 zstd)

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

# check_same WANTED GOT WHAT: two files are equal byte for byte.
check_same() {
  cmp "$1" "$2" >&2 || fail "$3: $1 and $2 differ"
}

# check_equal WANTED GOT WHAT
check_equal() {
  [ "$1" = "$2" ] || fail "$3: wanted '$1', got '$2'"
}

# check_has FILE PATTERN: some line matches the extended regular expression.
check_has() {
  grep -Eq -- "$2" "$1" || {
    sed 's/^/    /' "$1" | tail -40 >&2
    fail "no line like '$2' in $1"
  }
}

# check_has_not FILE PATTERN
check_has_not() {
  ! grep -E -- "$2" "$1" >&2 || fail "lines like '$2' in $1"
}

# serves API: whether the broker has the API, by its name in docs/api.md. Kafka has all.
serves() {
  [ "$AGAINST" = kafka ] || grep -Eq "^\\| [0-9]+ \\| $1 \\|" "$ROOT/docs/api.md"
}

# new_topic NAME PARTITIONS [key=value]...: made with kcat-free means, the broker's own tool.
new_topic() {
  local name=$1 partitions=$2 settings=() pair
  shift 2
  for pair in "$@"; do settings+=(--config "$pair"); done
  kafka_tool TopicCommand --bootstrap-server "$BOOTSTRAP" --create --topic "$name" \
    --partitions "$partitions" --replication-factor 1 "${settings[@]}" >/dev/null
}

# kafka_tool CLASS ARGUMENT...: one of Kafka's own tools; the class is in org.apache.kafka.tools
# unless it is given in full.
kafka_tool() {
  java "${JAVA_FLAGS[@]}" -cp "$JARS/*" "$(full_class "$1")" "${@:2}"
}

# start_tool CLASS ARGUMENT...: as kafka_tool, in the background; $! is the tool itself.
start_tool() {
  java "${JAVA_FLAGS[@]}" -cp "$JARS/*" "$(full_class "$1")" "${@:2}" &
}

full_class() {
  case $1 in
    org.* | kafka.*) printf '%s\n' "$1" ;;
    *) printf 'org.apache.kafka.tools.%s\n' "$1" ;;
  esac
}

# archive_classes FILE: has Java keep the classes of a tool there as it has them in memory, for the cases to
# come. Where it can not, they go without.
archive_classes() {
  java "${JAVA_FLAGS[@]}" "-XX:ArchiveClassesAtExit=$1" -cp "$JARS/*" kafka.admin.ConfigCommand \
    --bootstrap-server "$BOOTSTRAP" --describe --entity-type topics >/dev/null 2>&1 || true
  [ ! -e "$1" ] || export CLASS_ARCHIVE="$1"
}

# The other cases of the run get another one, also while nobody listens on it.
free_port() {
  local port
  while :; do
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])') ||
      return
    if mkdir "$PORTS/$port" 2>/dev/null; then break; fi
  done
  printf '%s\n' "$port"
}

# within SECONDS WHAT COMMAND...: runs it until it succeeds; what is true a moment later is no failure.
within() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || fail "never: $what"
    sleep 0.2
  done
}

# has FILE PATTERN: whether some line matches the extended regular expression.
has() { grep -Eqs -- "$2" "$1"; }

# start_broker FOLDER [key=value]...: starts a broker of the kind AGAINST names on FOLDER and sets
# BOOTSTRAP, DATA (its log directory), BROKER_LOG and BROKER_PID. Settings are Kafka's.
start_broker() {
  local folder=$1
  shift
  mkdir -p "$folder"
  DATA="$folder/data"
  BROKER_LOG="$folder/log.txt"
  : >"$BROKER_LOG"
  "start_$AGAINST" "$folder" "$@"
  # A case that fails leaves no broker and no tool behind.
  trap 'kill -KILL $(jobs -p) 2>/dev/null || true' EXIT
}

start_thalweg() {
  local folder=$1 settings=() pair data=(--data-dir "$DATA")
  shift
  for pair in "$@"; do
    settings+=(--set "$pair")
    # A case may name several.
    case $pair in log.dirs=*) data=() ;; esac
  done
  # After the first start the port stays, so that clients find the broker again.
  if [ ! -e "$folder/port" ]; then free_port >"$folder/port"; fi
  BOOTSTRAP="127.0.0.1:$(cat "$folder/port")"
  "$BINARY" serve "${data[@]}" --listen "$BOOTSTRAP" --shards "$SHARDS" \
    --metrics-listen none "${settings[@]}" >>"$BROKER_LOG" 2>&1 &
  BROKER_PID=$!
  wait_for_line 'listening.*address' 60
}

# serve_config FILE: starts Thalweg, whatever AGAINST says, as a configuration file says.
# BROKER_LOG begins anew.
serve_config() {
  # Here and not by the broker's own shell: the line of the broker before could be taken for its own.
  : >"$BROKER_LOG"
  "$BINARY" serve --config "$1" --shards "$SHARDS" --metrics-listen none >>"$BROKER_LOG" 2>&1 &
  BROKER_PID=$!
  wait_for_line 'listening.*address' 60
}

start_kafka() {
  local folder=$1 pair
  shift
  if [ ! -e "$folder/server.properties" ]; then
    local port controller
    port=$(free_port)
    controller=$(free_port)
    echo "$port" >"$folder/port"
    cat >"$folder/server.properties" <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
controller.listener.names=CONTROLLER
log.dirs=$DATA
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
PROPERTIES
    for pair in "$@"; do printf '%s\n' "$pair" >>"$folder/server.properties"; done
    kafka_tool kafka.tools.StorageTool format --cluster-id AAAAAAAAQACAAAAAAAAAAA \
      --config "$folder/server.properties" >"$folder/format.txt" 2>&1
  fi
  BOOTSTRAP="127.0.0.1:$(cat "$folder/port")"
  java -Xmx512m -XX:+UseSerialGC -Dorg.slf4j.simpleLogger.defaultLogLevel=info -cp "$JARS/*" \
    kafka.Kafka "$folder/server.properties" >>"$BROKER_LOG" 2>&1 &
  BROKER_PID=$!
  wait_for_line 'Kafka Server started' 120
}

# wait_for_line PATTERN SECONDS: until the broker's log has it.
wait_for_line() {
  local tries=$(($2 * 20))
  until grep -Eq "$1" "$BROKER_LOG"; do
    kill -0 "$BROKER_PID" 2>/dev/null || {
      tail -30 "$BROKER_LOG" >&2
      fail "the broker ended before it said '$1'"
    }
    [ "$((tries -= 1))" -gt 0 ] || fail "the broker did not say '$1' within $2 s"
    sleep 0.05
  done
}

# stop_broker: SIGTERM, and it ends well, within a minute.
stop_broker() {
  kill -TERM "$BROKER_PID" || {
    tail -30 "$BROKER_LOG" >&2
    fail "the broker has ended before"
  }
  local status=0 tries=1200
  while kill -0 "$BROKER_PID" 2>/dev/null; do
    [ "$((tries -= 1))" -gt 0 ] || {
      tail -30 "$BROKER_LOG" >&2
      kill -KILL "$BROKER_PID"
      fail "the broker does not end"
    }
    sleep 0.05
  done
  wait "$BROKER_PID" || status=$?
  BROKER_PID=
  # The JVM reports the signal even after an orderly stop.
  [ "$status" -eq 0 ] || [ "$AGAINST-$status" = kafka-143 ] || {
    tail -30 "$BROKER_LOG" >&2
    fail "the broker ended with status $status"
  }
}

# kill_broker: SIGKILL.
kill_broker() {
  kill -KILL "$BROKER_PID"
  wait "$BROKER_PID" 2>/dev/null || true
  BROKER_PID=
}

# real_text FILE: text that people wrote, without empty lines: about 3 MB, or at least 100 MB when
# LONG. kcat sends one record per line.
real_text() {
  local wanted=3000000
  [ "$LONG" = 0 ] || wanted=104857600
  local kept="$THALWEG_CACHE/text-$wanted"
  if [ ! -e "$kept" ]; then
    # `head` closes the pipe early; that is no failure here.
    (
      set +o pipefail
      while :; do
        find "$ROOT" /usr/share/doc /usr/share/common-licenses /usr/share/perl /usr/include \
          "${CARGO_HOME:-$HOME/.cargo}/registry/src" -type d -name target -prune -o -type f \
          \( -name '*.rs' -o -name '*.md' -o -name '*.txt' -o -name '*.h' -o -name '*.pm' \
          -o -name copyright -o -name 'GPL-*' -o -name LICENSE \) -print0 2>/dev/null |
          sort -z | xargs -0 cat 2>/dev/null
      done | LC_ALL=C tr -d '\000' | LC_ALL=C awk 'length($0) > 0 && length($0) < 65536' |
        LC_ALL=C awk -v wanted="$wanted" '{ print; size += length($0) + 1 } size >= wanted { exit }' \
          >"$kept.$$"
    )
    # Another case may be at it, too: the first one stays.
    ln "$kept.$$" "$kept" 2>/dev/null || true
    rm "$kept.$$"
  fi
  ln -s "$kept" "$1"
}

# stored_codecs TOPIC: the codecs of the batches in the topic's segments, sorted.
stored_codecs() {
  python3 "$FOREIGN/python/segment_codecs.py" "$DATA/$1-"*/*.log
}

# client_steps PREFIX COMMAND...: runs a program that does the steps of tests/foreign/README.md, and
# looks for the codecs that it has on the disk.
client_steps() {
  local prefix=$1
  shift
  "$@" "$BOOTSTRAP" "$prefix" "$((LONG ? 20000 : 200))" "$((LONG ? 6 : 2))"
  check_equal "gzip lz4 none snappy zstd" "$(stored_codecs "$prefix-codecs")" "codecs on disk"
}

# python_client SCRIPT ARGUMENT...
python_client() {
  local script=$1
  shift
  PYTHONDONTWRITEBYTECODE=1 "$PYTHON" "$FOREIGN/python/$script" "$@"
}

# node_client SCRIPT ARGUMENT...: Node looks for modules beside the script.
node_client() {
  local script=$1
  shift
  cp "$FOREIGN"/node/{package.json,*.js} .
  ln -s "$NODE_CLIENTS/node_modules" node_modules
  "$NODE_CLIENTS/node" "$script" "$@"
}

# java_client CLASS ARGUMENT...: compiled as it runs.
java_client() {
  local class=$1
  shift
  java "${JAVA_FLAGS[@]}" -cp "$JARS/*" "$FOREIGN/java/$class.java" "$@"
}
