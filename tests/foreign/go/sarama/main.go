// Writes and reads with Sarama. The steps are those of ../../README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"foreign/steps"

	"github.com/IBM/sarama"
)

var (
	arguments   = steps.Parse()
	brokers     = []string{arguments.Bootstrap}
	codecsTopic = arguments.Prefix + "-codecs"
	sharedTopic = arguments.Prefix + "-shared"
	group       = arguments.Prefix
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
	return config
}

func makeTopic(admin sarama.ClusterAdmin) {
	detail := &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1}
	steps.Must(admin.CreateTopic(codecsTopic, detail, false), "create")
	err := admin.CreateTopic(codecsTopic, detail, false)
	steps.Check(errors.Is(err, sarama.ErrTopicAlreadyExists), "made twice: %v", err)
	topics, err := admin.ListTopics()
	steps.Must(err, "list")
	steps.Check(topics[codecsTopic].NumPartitions == 2, "not listed: %v", topics[codecsTopic])
}

func alterTopic(admin sarama.ClusterAdmin) {
	wanted := "3600000"
	set := map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &wanted},
	}
	steps.Must(admin.IncrementalAlterConfig(sarama.TopicResource, codecsTopic, set, false), "alter")
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: codecsTopic})
	steps.Must(err, "describe")
	found := slices.ContainsFunc(entries, func(entry sarama.ConfigEntry) bool {
		return entry.Name == "retention.ms" && entry.Value == wanted
	})
	steps.Check(found, "retention.ms is not %s", wanted)
	steps.Must(admin.CreatePartitions(codecsTopic, 3, nil, false), "grow")
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
	message := &sarama.ProducerMessage{Topic: codecsTopic, Partition: 1}
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
	partition, err := consumer.ConsumePartition(codecsTopic, 1, sarama.OffsetOldest)
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
	all    *members
}

type members struct {
	lock     sync.Mutex
	assigned []int
	values   []string
}

func (own *member) Setup(session sarama.ConsumerGroupSession) error {
	own.all.lock.Lock()
	defer own.all.lock.Unlock()
	own.all.assigned[own.number] = len(session.Claims()[sharedTopic])
	return nil
}

func (own *member) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

func (own *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		own.all.lock.Lock()
		own.all.values = append(own.all.values, string(message.Value))
		own.all.lock.Unlock()
		session.MarkMessage(message, "")
	}
	return nil
}

func (own *member) run(stop context.Context, ended *sync.WaitGroup) {
	defer ended.Done()
	consumer, err := sarama.NewConsumerGroup(brokers, group, config())
	steps.Must(err, "member")
	for stop.Err() == nil {
		steps.Must(consumer.Consume(stop, []string{sharedTopic}, own), "consume")
	}
	steps.Must(consumer.Close(), "close the member")
}

// consume starts members, calls once each has its partitions, and returns what they read by then.
func consume(count int, wanted int, onceAssigned func()) []string {
	all := &members{assigned: make([]int, count)}
	stop, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	for number := range count {
		ended.Add(1)
		go (&member{number, all}).run(stop, &ended)
	}
	steps.Until("every member has its partitions", func() bool {
		all.lock.Lock()
		defer all.lock.Unlock()
		return !slices.ContainsFunc(all.assigned, func(own int) bool { return own != steps.SharedPartitions/count })
	})
	onceAssigned()
	steps.Until("the members read all", func() bool {
		all.lock.Lock()
		defer all.lock.Unlock()
		return len(all.values) >= wanted
	})
	time.Sleep(100 * time.Millisecond) // for what must not come
	cancel()
	ended.Wait()
	return all.values
}

func shareInGroup(admin sarama.ClusterAdmin) {
	detail := &sarama.TopicDetail{NumPartitions: steps.SharedPartitions, ReplicationFactor: 1}
	steps.Must(admin.CreateTopic(sharedTopic, detail, false), "create the shared topic")
	producer, err := sarama.NewSyncProducer(brokers, config())
	steps.Must(err, "producer")
	produce := func(round string) (sent []string) {
		var messages []*sarama.ProducerMessage
		for n := range arguments.Count {
			value := fmt.Sprintf("%s %d", round, n)
			sent = append(sent, value)
			messages = append(messages, &sarama.ProducerMessage{
				Topic: sharedTopic, Partition: int32(n % steps.SharedPartitions), Value: sarama.StringEncoder(value),
			})
		}
		steps.Must(producer.SendMessages(messages), "produce to the group")
		return sent
	}
	var sent []string
	got := consume(arguments.Members, arguments.Count, func() { sent = produce("first") })
	steps.SameValues(sent, got, "a group of several")
	sent = produce("second")
	got = consume(1, arguments.Count, func() {})
	steps.SameValues(sent, got, "a group that goes on")
	steps.Must(producer.Close(), "close the producer")
}

func deleteAll(admin sarama.ClusterAdmin) {
	groups, err := admin.ListConsumerGroups()
	steps.Must(err, "list groups")
	steps.Check(groups[group] == "consumer", "the group is listed as %q", groups[group])
	described, err := admin.DescribeConsumerGroups([]string{group})
	steps.Must(err, "describe group")
	steps.Check(described[0].State == "Empty", "state %s", described[0].State)
	steps.Must(admin.DeleteConsumerGroup(group), "delete group")
	groups, err = admin.ListConsumerGroups()
	steps.Must(err, "list groups")
	_, listed := groups[group]
	steps.Check(!listed, "the group is still listed")
	steps.Must(admin.DeleteTopic(sharedTopic), "delete")
	topics, err := admin.ListTopics()
	steps.Must(err, "list")
	_, listed = topics[sharedTopic]
	steps.Check(!listed, "the topic is still listed")
}
