# slow
# Kafka's tools change settings, add partitions, delete records and look at sizes.
# needs: IncrementalAlterConfigs
. "$FOREIGN/lib.sh"

start_broker "$WORK/broker"
tool() { kafka_tool "$@" --bootstrap-server "$BOOTSTRAP"; }
new_topic admin 2

tool TopicCommand --alter --topic admin --partitions 3
tool TopicCommand --describe --topic admin >"$WORK/topic.txt"
check_has "$WORK/topic.txt" 'PartitionCount: 3'

tool kafka.admin.ConfigCommand --alter --entity-type topics --entity-name admin \
  --add-config 'segment.bytes=2097152,cleanup.policy=[compact,delete]' >"$WORK/alter.txt"
tool kafka.admin.ConfigCommand --describe --entity-type topics --entity-name admin >"$WORK/configs.txt"
check_has "$WORK/configs.txt" 'segment.bytes=2097152.*DYNAMIC_TOPIC_CONFIG:segment.bytes=2097152'
check_has "$WORK/configs.txt" 'cleanup.policy=compact,delete'
tool kafka.admin.ConfigCommand --alter --entity-type topics --entity-name admin \
  --delete-config cleanup.policy >>"$WORK/alter.txt"

for owner in '--entity-name 1' '--entity-default'; do
  # shellcheck disable=SC2086
  tool kafka.admin.ConfigCommand --alter --entity-type brokers $owner \
    --add-config message.max.bytes=1000000,log.cleaner.threads=2,num.io.threads=9,leader.replication.throttled.rate=9 >>"$WORK/alter.txt"
done
tool kafka.admin.ConfigCommand --describe --entity-type topics --entity-name admin --all >"$WORK/all.txt"
check_has "$WORK/all.txt" \
  'max.message.bytes=1000000.*DYNAMIC_BROKER_CONFIG.*DYNAMIC_DEFAULT_BROKER_CONFIG.*DEFAULT_CONFIG'
! tool kafka.admin.ConfigCommand --alter --entity-type brokers --entity-name 1 \
  --add-config log.dirs=/tmp/elsewhere >"$WORK/refused.txt" 2>&1 || fail "log.dirs was taken"
check_has "$WORK/refused.txt" 'Cannot update these configs dynamically'

# Settings of groups are their own, bounded by the broker's (KIP-848).
tool kafka.admin.ConfigCommand --alter --entity-type groups --entity-name readers \
  --add-config 'consumer.session.timeout.ms=50000,consumer.heartbeat.interval.ms=7000' >>"$WORK/alter.txt"
tool kafka.admin.ConfigCommand --describe --entity-type groups --entity-name readers >"$WORK/group.txt"
check_has "$WORK/group.txt" 'consumer.session.timeout.ms=50000.*DYNAMIC_GROUP_CONFIG:consumer.session'
check_has "$WORK/group.txt" 'consumer.heartbeat.interval.ms=7000'
tool kafka.admin.ConfigCommand --describe --entity-type groups >"$WORK/groups.txt"
check_has "$WORK/groups.txt" 'Dynamic configs for group readers'
! tool kafka.admin.ConfigCommand --alter --entity-type groups --entity-name readers \
  --add-config consumer.session.timeout.ms=1000 >"$WORK/refused.txt" 2>&1 || fail "a short session was taken"
check_has "$WORK/refused.txt" 'must be greater than or equal to group.consumer.min.session.timeout.ms'
tool kafka.admin.ConfigCommand --alter --entity-type groups --entity-name readers \
  --delete-config consumer.session.timeout.ms,consumer.heartbeat.interval.ms >>"$WORK/alter.txt"
tool kafka.admin.ConfigCommand --describe --entity-type groups --entity-name readers >"$WORK/group.txt"
check_has_not "$WORK/group.txt" 'session'

printf '%s\n' one two three >"$WORK/lines.txt"
tool ConsoleProducer --topic admin <"$WORK/lines.txt"
tool GetOffsetShell --topic admin | sort >"$WORK/ends.txt"
sed 's/\(.*\):\(.*\):.*/{"topic":"\1","partition":\2,"offset":-1}/' "$WORK/ends.txt" | paste -sd, |
  sed 's/.*/{"version":1,"partitions":[&]}/' >"$WORK/delete.json"
tool DeleteRecordsCommand --offset-json-file "$WORK/delete.json" >"$WORK/deleted.txt"
check_has "$WORK/deleted.txt" 'low_watermark: 3'
tool GetOffsetShell --topic admin --time earliest | sort >"$WORK/starts.txt"
check_same "$WORK/ends.txt" "$WORK/starts.txt" 'everything was deleted'

tool LogDirsCommand --describe --topic-list admin >"$WORK/dirs.txt"
check_has "$WORK/dirs.txt" '"partition":"admin-2","size":[0-9]+'
! tool AclCommand --list >"$WORK/acls.txt" 2>&1 || fail "ACLs without an authorizer"
check_has "$WORK/acls.txt" 'SecurityDisabledException'
tool org.apache.kafka.tools.reassign.ReassignPartitionsCommand --list >"$WORK/moves.txt"
check_has "$WORK/moves.txt" 'No partition reassignments found'
