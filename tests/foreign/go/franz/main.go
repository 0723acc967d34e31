// Writes and reads with franz-go. The steps are those of ../../README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"foreign/steps"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	arguments = steps.Parse()
	ctx       context.Context
)

func main() {
	var cancel context.CancelFunc
	ctx, cancel = context.WithTimeout(context.Background(), 10*steps.Patience)
	defer cancel()
	admin := kadm.NewClient(client())
	makeTopic(admin)
	alterTopic(admin)
	sent := produceEachCodec()
	steps.Same(sent, readPartition(len(sent)), "without a group")
	shareInGroup(admin)
	deleteAll(admin)
	fmt.Println("ok")
}

func client(options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(arguments.Bootstrap))...)
	steps.Must(err, "client")
	return client
}

func makeTopic(admin *kadm.Client) {
	_, err := admin.CreateTopic(ctx, 2, 1, nil, arguments.CodecsTopic)
	steps.Must(err, "create")
	_, err = admin.CreateTopic(ctx, 2, 1, nil, arguments.CodecsTopic)
	steps.Check(errors.Is(err, kerr.TopicAlreadyExists), "made twice: %v", err)
	topics, err := admin.ListTopics(ctx)
	steps.Must(err, "list")
	steps.Check(topics.Has(arguments.CodecsTopic), "not listed")
}

func alterTopic(admin *kadm.Client) {
	wanted := "3600000"
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &wanted}}
	altered, err := admin.AlterTopicConfigs(ctx, set, arguments.CodecsTopic)
	steps.Must(err, "alter")
	steps.Must(altered[0].Err, "alter the topic")
	described, err := admin.DescribeTopicConfigs(ctx, arguments.CodecsTopic)
	steps.Must(err, "describe")
	found := slices.ContainsFunc(described[0].Configs, func(config kadm.Config) bool {
		return config.Key == "retention.ms" && config.MaybeValue() == wanted
	})
	steps.Check(found, "retention.ms is not %s", wanted)
	grown, err := admin.UpdatePartitions(ctx, 3, arguments.CodecsTopic)
	steps.Must(err, "grow")
	steps.Must(grown.Error(), "grow the topic")
}

func produceEachCodec() []steps.Record {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	var all []steps.Record
	for codec, compression := range codecs {
		for _, idempotent := range []bool{true, false} {
			options := []kgo.Opt{kgo.ProducerBatchCompression(compression), kgo.RecordPartitioner(kgo.ManualPartitioner())}
			if !idempotent {
				options = append(options, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
			}
			records := steps.Records(steps.Label(codec, idempotent), arguments.Count)
			send(client(options...), records, int64(len(all)))
			all = append(all, records...)
		}
	}
	return all
}

func send(producer *kgo.Client, records []steps.Record, next int64) {
	defer producer.Close()
	var outgoing []*kgo.Record
	for _, record := range records {
		outgoing = append(outgoing, toKgo(record))
	}
	for _, result := range producer.ProduceSync(ctx, outgoing...) {
		steps.Must(result.Err, "produce")
		steps.Check(result.Record.Offset == next, "offset %d, not %d", result.Record.Offset, next)
		next++
	}
}

func toKgo(record steps.Record) *kgo.Record {
	outgoing := &kgo.Record{Topic: arguments.CodecsTopic, Partition: 1, Key: record.Key, Value: record.Value}
	for _, header := range record.Headers {
		outgoing.Headers = append(outgoing.Headers, kgo.RecordHeader{Key: header.Key, Value: []byte(header.Value)})
	}
	return outgoing
}

func readPartition(count int) []steps.Record {
	offsets := map[string]map[int32]kgo.Offset{arguments.CodecsTopic: {1: kgo.NewOffset().AtStart()}}
	consumer := client(kgo.ConsumePartitions(offsets))
	defer consumer.Close()
	var got []steps.Record
	for len(got) < count {
		fetches := consumer.PollFetches(ctx)
		steps.Must(fetches.Err(), "fetch")
		fetches.EachRecord(func(record *kgo.Record) {
			read := steps.Record{Key: record.Key, Value: record.Value}
			for _, header := range record.Headers {
				read.Headers = append(read.Headers, steps.Header{Key: header.Key, Value: string(header.Value)})
			}
			got = append(got, read)
		})
	}
	return got
}

func member(stop context.Context, number int, all *steps.Members) {
	consumer := client(
		kgo.ConsumerGroup(arguments.Group), kgo.ConsumeTopics(arguments.SharedTopic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.Balancers(kgo.RangeBalancer()),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			all.Assigned(number, len(partitions[arguments.SharedTopic]))
		}),
	)
	defer consumer.Close()
	for {
		fetches := consumer.PollFetches(stop)
		if stop.Err() != nil {
			break
		}
		steps.Must(fetches.Err(), "fetch in the group")
		fetches.EachRecord(func(record *kgo.Record) { all.Read(string(record.Value)) })
	}
	steps.Must(consumer.CommitUncommittedOffsets(ctx), "commit")
	all.Committed()
}

func shareInGroup(admin *kadm.Client) {
	_, err := admin.CreateTopic(ctx, steps.SharedPartitions, 1, nil, arguments.SharedTopic)
	steps.Must(err, "create the shared topic")
	producer := client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer producer.Close()
	produce := func(values []steps.Value) {
		var records []*kgo.Record
		for _, value := range values {
			records = append(records, &kgo.Record{Topic: arguments.SharedTopic, Partition: value.Partition, Value: []byte(value.Text)})
		}
		steps.Must(producer.ProduceSync(ctx, records...).FirstErr(), "produce to the group")
	}
	ready := func(all *steps.Members, _ int) bool { return all.HaveShares() }
	steps.Sharing{Produce: produce, Run: member, Ready: ready}.Share(arguments)
}

func deleteAll(admin *kadm.Client) {
	groups, err := admin.ListGroups(ctx)
	steps.Must(err, "list groups")
	steps.Check(slices.Contains(groups.Groups(), arguments.Group), "the group is not listed")
	steps.Until("the group is empty", func() bool {
		described, err := admin.DescribeGroups(ctx, arguments.Group)
		steps.Must(err, "describe group")
		return described[arguments.Group].State == "Empty"
	})
	_, err = admin.DeleteGroup(ctx, arguments.Group)
	steps.Must(err, "delete group")
	groups, err = admin.ListGroups(ctx)
	steps.Must(err, "list groups")
	steps.Check(!slices.Contains(groups.Groups(), arguments.Group), "the group is still listed")
	_, err = admin.DeleteTopic(ctx, arguments.SharedTopic)
	steps.Must(err, "delete")
	topics, err := admin.ListTopics(ctx)
	steps.Must(err, "list")
	steps.Check(!topics.Has(arguments.SharedTopic), "still listed")
}
