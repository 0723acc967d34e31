# slow
# Kafka's tools ask what the cluster is, what users and groups have set; and those that ask for what is
# not served yet end by saying so.
. "$FOREIGN/lib.sh"

tool() { kafka_tool "$1" --bootstrap-server "$BOOTSTRAP" "${@:2}"; }
kafka_tool ClusterTool cluster-id --bootstrap-server "$BOOTSTRAP" >cluster.txt
check_has cluster.txt "$(sed -n 's/^cluster.id=/Cluster ID: /p' "$DATA/meta.properties")"
kafka_tool ClusterTool list-endpoints --bootstrap-server "$BOOTSTRAP" >endpoints.txt
check_has endpoints.txt "^1 +127.0.0.1 +${BOOTSTRAP#*:} .*unfenced +broker"

configs() { tool kafka.admin.ConfigCommand --describe "$@"; }
configs --entity-type users >users.txt
configs --entity-type users --entity-name nobody >>users.txt
configs --entity-type clients >>users.txt
configs --entity-type client-metrics >>users.txt
[ ! -s users.txt ] || fail "settings of users: $(cat users.txt)"
new_topic java-cluster 1
echo one | kcat -b "$BOOTSTRAP" -P -t java-cluster
kcat -b "$BOOTSTRAP" -e -q -o beginning -G java-cluster java-cluster >read.txt
configs --entity-type groups --entity-name java-cluster >groups.txt
check_equal "Dynamic configs for group java-cluster are:" "$(cat groups.txt)" "settings of a group"

# not_yet API COMMAND...: works if the API is served, and else says in one exception that it is not.
not_yet() {
  local api=$1 status=0
  shift
  tool "$@" >answer.txt 2>&1 || status=$?
  if serves "$api"; then
    check_equal 0 $status "$*"
  else
    [ $status -ne 0 ] || fail "$* succeeds without $api"
    check_has answer.txt 'does not support'
  fi
}
not_yet ListTransactions TransactionsCommand list
tool MetadataQuorumCommand describe --status >quorum.txt
check_has quorum.txt '^LeaderId: +1$'
check_has quorum.txt '^MaxFollowerLag: +0$'
tool MetadataQuorumCommand describe --replication >replication.txt
check_has replication.txt '^1\s.*\sLeader'
tool LeaderElectionCommand --election-type preferred --all-topic-partitions >elections.txt
for type in preferred unclean; do
  tool LeaderElectionCommand --election-type $type --topic java-cluster --partition 0 >elections.txt
  check_has elections.txt 'Valid replica already elected for partitions java-cluster-0'
done
tool FeatureCommand describe >features.txt
