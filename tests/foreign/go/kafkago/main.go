// Writes and reads with segmentio's kafka-go. The steps are those of ../../README.md, less idempotent
// producers, which the library does not have.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"foreign/steps"

	"github.com/segmentio/kafka-go"
)

var (
	arguments = steps.Parse()
	client    = &kafka.Client{Addr: kafka.TCP(arguments.Bootstrap), Timeout: steps.Patience}
	ctx       context.Context
)

func main() {
	var cancel context.CancelFunc
	ctx, cancel = context.WithTimeout(context.Background(), 10*steps.Patience)
	defer cancel()
	makeTopic()
	alterTopic()
	sent := produceEachCodec()
	steps.Same(sent, readPartition(len(sent)), "without a group")
	shareInGroup()
	deleteAll()
	fmt.Println("ok")
}

func create(topic string, partitions int) error {
	response, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}},
	})
	steps.Must(err, "create")
	return response.Errors[topic]
}

func listed(topic string) bool {
	response, err := client.Metadata(ctx, &kafka.MetadataRequest{})
	steps.Must(err, "list")
	return slices.ContainsFunc(response.Topics, func(each kafka.Topic) bool { return each.Name == topic })
}

func makeTopic() {
	steps.Must(create(arguments.CodecsTopic, 2), "create")
	err := create(arguments.CodecsTopic, 2)
	steps.Check(errors.Is(err, kafka.TopicAlreadyExists), "made twice: %v", err)
	steps.Check(listed(arguments.CodecsTopic), "not listed")
}

func alterTopic() {
	wanted := "3600000"
	altered, err := client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: arguments.CodecsTopic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: "retention.ms", Value: wanted}},
		}},
	})
	steps.Must(err, "alter")
	steps.Must(altered.Resources[0].Error, "alter the topic")
	described, err := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: arguments.CodecsTopic}},
	})
	steps.Must(err, "describe")
	found := slices.ContainsFunc(described.Resources[0].ConfigEntries, func(entry kafka.DescribeConfigResponseConfigEntry) bool {
		return entry.ConfigName == "retention.ms" && entry.ConfigValue == wanted
	})
	steps.Check(found, "retention.ms is not %s", wanted)
	grown, err := client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: arguments.CodecsTopic, Count: 3}},
	})
	steps.Must(err, "grow")
	steps.Must(grown.Errors[arguments.CodecsTopic], "grow the topic")
}

// toPartition sends every message to one partition.
func toPartition(partition int) kafka.Balancer {
	return kafka.BalancerFunc(func(kafka.Message, ...int) int { return partition })
}

func produceEachCodec() []steps.Record {
	var all []steps.Record
	for _, codec := range []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd} {
		records := steps.Records(steps.Label(codec.String(), false), arguments.Count)
		writer := &kafka.Writer{
			Addr: kafka.TCP(arguments.Bootstrap), Topic: arguments.CodecsTopic, Balancer: toPartition(1),
			Compression: codec, RequiredAcks: kafka.RequireAll, BatchTimeout: 10 * time.Millisecond,
		}
		var messages []kafka.Message
		for _, record := range records {
			message := kafka.Message{Key: record.Key, Value: record.Value}
			for _, header := range record.Headers {
				message.Headers = append(message.Headers, kafka.Header{Key: header.Key, Value: []byte(header.Value)})
			}
			messages = append(messages, message)
		}
		steps.Must(writer.WriteMessages(ctx, messages...), "produce")
		steps.Must(writer.Close(), "close the writer")
		all = append(all, records...)
	}
	return all
}

func readPartition(count int) []steps.Record {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{arguments.Bootstrap}, Topic: arguments.CodecsTopic, Partition: 1, MaxBytes: 1 << 20,
	})
	var got []steps.Record
	for len(got) < count {
		message, err := reader.ReadMessage(ctx)
		steps.Must(err, "read")
		record := steps.Record{Key: message.Key, Value: message.Value}
		for _, header := range message.Headers {
			record.Headers = append(record.Headers, steps.Header{Key: header.Key, Value: string(header.Value)})
		}
		got = append(got, record)
	}
	steps.Must(reader.Close(), "close the reader")
	return got
}

func member(stop context.Context, _ int, all *steps.Members) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{arguments.Bootstrap}, GroupID: arguments.Group, Topic: arguments.SharedTopic,
		StartOffset: kafka.FirstOffset, MaxWait: 100 * time.Millisecond,
	})
	for {
		message, err := reader.FetchMessage(stop)
		if errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) {
			break
		}
		steps.Must(err, "read in the group")
		all.Read(string(message.Value))
		steps.Must(reader.CommitMessages(ctx, message), "commit")
	}
	all.Committed()
	steps.Must(reader.Close(), "close the member")
}

// isStable is true when the group has as many members as there should be: the library tells nobody its
// partitions.
func isStable(_ *steps.Members, members int) bool {
	response, err := client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{arguments.Group}})
	steps.Must(err, "describe")
	return response.Groups[0].GroupState == "Stable" && len(response.Groups[0].Members) == members
}

func shareInGroup() {
	steps.Must(create(arguments.SharedTopic, steps.SharedPartitions), "create the shared topic")
	writer := &kafka.Writer{
		Addr: kafka.TCP(arguments.Bootstrap), Topic: arguments.SharedTopic, Balancer: &kafka.RoundRobin{},
		RequiredAcks: kafka.RequireOne, BatchTimeout: 10 * time.Millisecond,
	}
	produce := func(values []steps.Value) {
		var messages []kafka.Message
		for _, value := range values {
			messages = append(messages, kafka.Message{Value: []byte(value.Text)})
		}
		steps.Must(writer.WriteMessages(ctx, messages...), "produce to the group")
	}
	steps.Sharing{Produce: produce, Run: member, Ready: isStable}.Share(arguments)
	steps.Must(writer.Close(), "close the writer")
}

func groupListed() bool {
	response, err := client.ListGroups(ctx, &kafka.ListGroupsRequest{})
	steps.Must(err, "list groups")
	steps.Must(response.Error, "list groups")
	return slices.ContainsFunc(response.Groups, func(each kafka.ListGroupsResponseGroup) bool { return each.GroupID == arguments.Group })
}

func deleteAll() {
	steps.Check(groupListed(), "the group is not listed")
	deleted, err := client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{arguments.Group}})
	steps.Must(err, "delete group")
	steps.Must(deleted.Errors[arguments.Group], "delete the group")
	steps.Check(!groupListed(), "the group is still listed")
	gone, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{arguments.SharedTopic}})
	steps.Must(err, "delete")
	steps.Must(gone.Errors[arguments.SharedTopic], "delete the topic")
	// The library keeps metadata for a while.
	steps.Until("the topic is not listed", func() bool { return !listed(arguments.SharedTopic) })
}
