// Writes and reads with Sarama. The steps are those of ../../README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"foreign/steps"

	"github.com/IBM/sarama"
)

var (
	arguments = steps.Parse()
	brokers   = []string{arguments.Bootstrap}
)

func main() {
	admin, err := sarama.NewClusterAdmin(brokers, config())
	steps.Must(err, "admin")
	makeTopic(admin)
	alterTopic(admin)
	sent := produceEachCodec()
	steps.Same(sent, readPartition(len(sent)), "without a group")
	shareInGroup(admin)
	deleteAll(admin)
	steps.Must(admin.Close(), "close")
	fmt.Println("ok")
}

func config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForLocal
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	// A member that stands still for longer reads again what it has read.
	config.Consumer.Group.Session.Timeout = 30 * time.Second
	return config
}

func makeTopic(admin sarama.ClusterAdmin) {
	detail := &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1}
	steps.Must(admin.CreateTopic(arguments.CodecsTopic, detail, false), "create")
	err := admin.CreateTopic(arguments.CodecsTopic, detail, false)
	steps.Check(errors.Is(err, sarama.ErrTopicAlreadyExists), "made twice: %v", err)
	topics, err := admin.ListTopics()
	steps.Must(err, "list")
	steps.Check(topics[arguments.CodecsTopic].NumPartitions == 2, "not listed: %v", topics[arguments.CodecsTopic])
}

func alterTopic(admin sarama.ClusterAdmin) {
	wanted := "3600000"
	set := map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &wanted},
	}
	steps.Must(admin.IncrementalAlterConfig(sarama.TopicResource, arguments.CodecsTopic, set, false), "alter")
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: arguments.CodecsTopic})
	steps.Must(err, "describe")
	found := slices.ContainsFunc(entries, func(entry sarama.ConfigEntry) bool {
		return entry.Name == "retention.ms" && entry.Value == wanted
	})
	steps.Check(found, "retention.ms is not %s", wanted)
	steps.Must(admin.CreatePartitions(arguments.CodecsTopic, 3, nil, false), "grow")
}

func produceEachCodec() []steps.Record {
	codecs := []sarama.CompressionCodec{
		sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy,
		sarama.CompressionLZ4, sarama.CompressionZSTD,
	}
	var all []steps.Record
	for _, codec := range codecs {
		for _, idempotent := range []bool{true, false} {
			config := config()
			config.Producer.Compression = codec
			if idempotent {
				config.Producer.Idempotent = true
				config.Producer.RequiredAcks = sarama.WaitForAll
				config.Net.MaxOpenRequests = 1
			}
			records := steps.Records(steps.Label(codec.String(), idempotent), arguments.Count)
			send(config, records, int64(len(all)))
			all = append(all, records...)
		}
	}
	return all
}

func send(config *sarama.Config, records []steps.Record, next int64) {
	producer, err := sarama.NewSyncProducer(brokers, config)
	steps.Must(err, "producer")
	var outgoing []*sarama.ProducerMessage
	for _, record := range records {
		outgoing = append(outgoing, toSarama(record))
	}
	steps.Must(producer.SendMessages(outgoing), "produce")
	for _, message := range outgoing {
		steps.Check(message.Offset == next, "offset %d, not %d", message.Offset, next)
		next++
	}
	steps.Must(producer.Close(), "close the producer")
}

func toSarama(record steps.Record) *sarama.ProducerMessage {
	message := &sarama.ProducerMessage{Topic: arguments.CodecsTopic, Partition: 1}
	// An encoder of nil bytes would send an empty key.
	if record.Key != nil {
		message.Key = sarama.ByteEncoder(record.Key)
	}
	if record.Value != nil {
		message.Value = sarama.ByteEncoder(record.Value)
	}
	for _, header := range record.Headers {
		message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header.Key), Value: []byte(header.Value)})
	}
	return message
}

func readPartition(count int) []steps.Record {
	consumer, err := sarama.NewConsumer(brokers, config())
	steps.Must(err, "consumer")
	partition, err := consumer.ConsumePartition(arguments.CodecsTopic, 1, sarama.OffsetOldest)
	steps.Must(err, "partition")
	var got []steps.Record
	timeout := time.After(steps.Patience)
	for len(got) < count {
		select {
		case message := <-partition.Messages():
			got = append(got, fromSarama(message))
		case <-timeout:
			steps.Check(false, "read %d of %d", len(got), count)
		}
	}
	steps.Must(partition.Close(), "close the partition")
	steps.Must(consumer.Close(), "close the consumer")
	return got
}

func fromSarama(message *sarama.ConsumerMessage) steps.Record {
	record := steps.Record{Key: message.Key, Value: message.Value}
	for _, header := range message.Headers {
		record.Headers = append(record.Headers, steps.Header{Key: string(header.Key), Value: string(header.Value)})
	}
	return record
}

// member of the group, which tells the others' record what it has and what it reads.
type member struct {
	number int
	all    *steps.Members
}

func (own *member) Setup(session sarama.ConsumerGroupSession) error {
	own.all.Assigned(own.number, len(session.Claims()[arguments.SharedTopic]))
	return nil
}

func (own *member) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

func (own *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		own.all.Read(string(message.Value))
		session.MarkMessage(message, "")
	}
	return nil
}

func runMember(stop context.Context, number int, all *steps.Members) {
	consumer, err := sarama.NewConsumerGroup(brokers, arguments.Group, config())
	steps.Must(err, "member")
	for stop.Err() == nil {
		steps.Must(consumer.Consume(stop, []string{arguments.SharedTopic}, &member{number, all}), "consume")
	}
	all.Committed()
	steps.Must(consumer.Close(), "close the member")
}

func shareInGroup(admin sarama.ClusterAdmin) {
	detail := &sarama.TopicDetail{NumPartitions: steps.SharedPartitions, ReplicationFactor: 1}
	steps.Must(admin.CreateTopic(arguments.SharedTopic, detail, false), "create the shared topic")
	producer, err := sarama.NewSyncProducer(brokers, config())
	steps.Must(err, "producer")
	produce := func(values []steps.Value) {
		var messages []*sarama.ProducerMessage
		for _, value := range values {
			messages = append(messages, &sarama.ProducerMessage{
				Topic: arguments.SharedTopic, Partition: value.Partition, Value: sarama.StringEncoder(value.Text),
			})
		}
		steps.Must(producer.SendMessages(messages), "produce to the group")
	}
	ready := func(all *steps.Members, _ int) bool { return all.HaveShares() }
	steps.Sharing{Produce: produce, Run: runMember, Ready: ready}.Share(arguments)
	steps.Must(producer.Close(), "close the producer")
}

func deleteAll(admin sarama.ClusterAdmin) {
	groups, err := admin.ListConsumerGroups()
	steps.Must(err, "list groups")
	steps.Check(groups[arguments.Group] == "consumer", "the group is listed as %q", groups[arguments.Group])
	steps.Until("the group is empty", func() bool {
		described, err := admin.DescribeConsumerGroups([]string{arguments.Group})
		steps.Must(err, "describe group")
		return described[0].State == "Empty"
	})
	steps.Must(admin.DeleteConsumerGroup(arguments.Group), "delete group")
	groups, err = admin.ListConsumerGroups()
	steps.Must(err, "list groups")
	_, listed := groups[arguments.Group]
	steps.Check(!listed, "the group is still listed")
	steps.Must(admin.DeleteTopic(arguments.SharedTopic), "delete")
	topics, err := admin.ListTopics()
	steps.Must(err, "list")
	_, listed = topics[arguments.SharedTopic]
	steps.Check(!listed, "the topic is still listed")
}
