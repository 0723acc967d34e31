# TopicCommand makes, lists and deletes topics, and hears why it can not.
. "$FOREIGN/lib.sh"

topics() { kafka_tool TopicCommand --bootstrap-server "$BOOTSTRAP" "$@"; }
topics --create --topic java-topics --partitions 4 --replication-factor 1 \
  --config retention.ms=3600000 >created.txt
check_has created.txt 'Created topic java-topics'
topics --list >listed.txt
check_has listed.txt '^java-topics$'
! topics --create --topic java-topics --partitions 1 >again.txt 2>&1 || fail "made the topic twice"
check_has again.txt 'already exists'
topics --create --if-not-exists --topic java-topics --partitions 1 >/dev/null
! topics --create --topic 'not/a/name' --partitions 1 >name.txt 2>&1 || fail "took a bad name"
check_has name.txt 'not/a/name|illegal|invalid'
! topics --create --topic java-too-many --partitions 1 --replication-factor 3 >factor.txt 2>&1 ||
  fail "made three replicas on one broker"
check_has factor.txt 'INVALID_REPLICATION_FACTOR|InvalidReplicationFactor|[Rr]eplication factor'
topics --delete --topic java-topics
topics --list >listed.txt
check_has_not listed.txt '^java-topics$'
