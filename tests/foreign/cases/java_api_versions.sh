# Kafka's own table of what we serve has no gap that its clients would stumble on.
. "$FOREIGN/lib.sh"

kafka_tool BrokerApiVersionsCommand --bootstrap-server "$BOOTSTRAP" >got.txt
check_has got.txt "^$BOOTSTRAP"
for api in Produce Fetch ListOffsets Metadata ApiVersions CreateTopics DeleteTopics DescribeCluster \
  SaslHandshake SaslAuthenticate; do
  check_has got.txt "$api\\([0-9]+\\): [0-9]+( to [0-9]+)? \\[usable: "
done
