# needs: DescribeConfigs
# TopicCommand describes a topic, with the settings it asks DescribeConfigs for.
. "$FOREIGN/lib.sh"

new_topic java-describe 4 retention.ms=3600000
kafka_tool TopicCommand --bootstrap-server "$BOOTSTRAP" --describe --topic java-describe >got.txt
check_has got.txt 'Topic: java-describe.*PartitionCount: 4.*ReplicationFactor: 1.*retention.ms=3600000'
check_equal 4 "$(grep -c 'Partition: [0-9]' got.txt)" "lines about partitions"
