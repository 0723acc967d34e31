// Writes and reads with franz-go. The steps are those of ../../README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"foreign/steps"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	arguments   = steps.Parse()
	codecsTopic = arguments.Prefix + "-codecs"
	sharedTopic = arguments.Prefix + "-shared"
	group       = arguments.Prefix
	ctx         context.Context
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
	_, err := admin.CreateTopic(ctx, 2, 1, nil, codecsTopic)
	steps.Must(err, "create")
	_, err = admin.CreateTopic(ctx, 2, 1, nil, codecsTopic)
	steps.Check(errors.Is(err, kerr.TopicAlreadyExists), "made twice: %v", err)
	topics, err := admin.ListTopics(ctx)
	steps.Must(err, "list")
	steps.Check(topics.Has(codecsTopic), "not listed")
}

func alterTopic(admin *kadm.Client) {
	wanted := "3600000"
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &wanted}}
	altered, err := admin.AlterTopicConfigs(ctx, set, codecsTopic)
	steps.Must(err, "alter")
	steps.Must(altered[0].Err, "alter the topic")
	described, err := admin.DescribeTopicConfigs(ctx, codecsTopic)
	steps.Must(err, "describe")
	found := slices.ContainsFunc(described[0].Configs, func(config kadm.Config) bool {
		return config.Key == "retention.ms" && config.MaybeValue() == wanted
	})
	steps.Check(found, "retention.ms is not %s", wanted)
	grown, err := admin.UpdatePartitions(ctx, 3, codecsTopic)
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
	outgoing := &kgo.Record{Topic: codecsTopic, Partition: 1, Key: record.Key, Value: record.Value}
	for _, header := range record.Headers {
		outgoing.Headers = append(outgoing.Headers, kgo.RecordHeader{Key: header.Key, Value: []byte(header.Value)})
	}
	return outgoing
}

func readPartition(count int) []steps.Record {
	offsets := map[string]map[int32]kgo.Offset{codecsTopic: {1: kgo.NewOffset().AtStart()}}
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

// members of the group, what they have and what they read.
type members struct {
	lock     sync.Mutex
	assigned []int
	values   []string
}

func (all *members) run(member int, stop context.Context, ended *sync.WaitGroup) {
	defer ended.Done()
	consumer := client(
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(sharedTopic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.Balancers(kgo.RangeBalancer()),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			all.lock.Lock()
			defer all.lock.Unlock()
			all.assigned[member] = len(partitions[sharedTopic])
		}),
	)
	defer consumer.Close()
	for {
		fetches := consumer.PollFetches(stop)
		if stop.Err() != nil {
			break
		}
		steps.Must(fetches.Err(), "fetch in the group")
		all.lock.Lock()
		fetches.EachRecord(func(record *kgo.Record) { all.values = append(all.values, string(record.Value)) })
		all.lock.Unlock()
	}
	steps.Must(consumer.CommitUncommittedOffsets(ctx), "commit")
}

// consume starts members, calls once each has its partitions, and returns what they read by then.
func consume(count int, wanted int, onceAssigned func()) []string {
	all := &members{assigned: make([]int, count)}
	stop, cancel := context.WithCancel(ctx)
	var ended sync.WaitGroup
	for member := range count {
		ended.Add(1)
		go all.run(member, stop, &ended)
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

func shareInGroup(admin *kadm.Client) {
	_, err := admin.CreateTopic(ctx, steps.SharedPartitions, 1, nil, sharedTopic)
	steps.Must(err, "create the shared topic")
	producer := client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer producer.Close()
	produce := func(round string) (sent []string) {
		var records []*kgo.Record
		for n := range arguments.Count {
			value := fmt.Sprintf("%s %d", round, n)
			sent = append(sent, value)
			partition := int32(n % steps.SharedPartitions)
			records = append(records, &kgo.Record{Topic: sharedTopic, Partition: partition, Value: []byte(value)})
		}
		steps.Must(producer.ProduceSync(ctx, records...).FirstErr(), "produce to the group")
		return sent
	}
	var sent []string
	got := consume(arguments.Members, arguments.Count, func() { sent = produce("first") })
	steps.SameValues(sent, got, "a group of several")
	sent = produce("second")
	got = consume(1, arguments.Count, func() {})
	steps.SameValues(sent, got, "a group that goes on")
}

func deleteAll(admin *kadm.Client) {
	groups, err := admin.ListGroups(ctx)
	steps.Must(err, "list groups")
	steps.Check(slices.Contains(groups.Groups(), group), "the group is not listed")
	described, err := admin.DescribeGroups(ctx, group)
	steps.Must(err, "describe group")
	steps.Check(described[group].State == "Empty", "state %s", described[group].State)
	_, err = admin.DeleteGroup(ctx, group)
	steps.Must(err, "delete group")
	groups, err = admin.ListGroups(ctx)
	steps.Must(err, "list groups")
	steps.Check(!slices.Contains(groups.Groups(), group), "the group is still listed")
	_, err = admin.DeleteTopic(ctx, sharedTopic)
	steps.Must(err, "delete")
	topics, err := admin.ListTopics(ctx)
	steps.Must(err, "list")
	steps.Check(!topics.Has(sharedTopic), "still listed")
}
