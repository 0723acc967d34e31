// One member of a group, which prints the partition and offset of each record before it commits it.
// Usage: member franz|sarama HOST:PORT GROUP TOPIC PROTOCOL. SIGTERM ends it in order.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"foreign/steps"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	session   = 6 * time.Second
	heartbeat = 500 * time.Millisecond
)

type member struct {
	bootstrap, group, topic, protocol string

	lock sync.Mutex
	out  *bufio.Writer
}

func main() {
	steps.Check(len(os.Args) == 6, "usage: franz|sarama HOST:PORT GROUP TOPIC PROTOCOL")
	own := &member{os.Args[2], os.Args[3], os.Args[4], os.Args[5], sync.Mutex{}, bufio.NewWriter(os.Stdout)}
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	switch os.Args[1] {
	case "franz":
		own.franz(stop)
	case "sarama":
		own.sarama(stop)
	default:
		steps.Check(false, "there is no %s", os.Args[1])
	}
}

func (own *member) saw(partition int32, offset int64) {
	own.lock.Lock()
	defer own.lock.Unlock()
	fmt.Fprintf(own.out, "%d %d\n", partition, offset)
}

func (own *member) flush() {
	own.lock.Lock()
	defer own.lock.Unlock()
	steps.Must(own.out.Flush(), "print")
}

func complain(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, time.Now().Format(time.TimeOnly), err)
	}
}

func (own *member) franz(stop context.Context) {
	options := []kgo.Opt{
		kgo.SeedBrokers(own.bootstrap), kgo.ConsumerGroup(own.group), kgo.ConsumeTopics(own.topic),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(session), kgo.HeartbeatInterval(heartbeat), kgo.FetchMaxWait(200 * time.Millisecond),
	}
	switch own.protocol {
	case "range":
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	case "cooperative-sticky":
		options = append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	case "consumer":
		options = append(options, kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer())
	default:
		steps.Check(false, "franz-go has no %s here", own.protocol)
	}
	client, err := kgo.NewClient(options...)
	steps.Must(err, "client")
	defer client.CloseAllowingRebalance()
	owes := false
	for stop.Err() == nil {
		// Ends in time to commit again what failed when nothing more comes.
		poll, polled := context.WithTimeout(stop, time.Second)
		fetches := client.PollFetches(poll)
		polled()
		fetches.EachError(func(_ string, _ int32, err error) {
			if !errors.Is(err, context.DeadlineExceeded) {
				complain(err)
			}
		})
		var records []*kgo.Record
		fetches.EachRecord(func(record *kgo.Record) {
			own.saw(record.Partition, record.Offset)
			records = append(records, record)
		})
		own.flush()
		if len(records) > 0 || owes {
			within, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			err := client.CommitRecords(within, records...)
			if len(records) == 0 {
				err = client.CommitUncommittedOffsets(within)
			}
			complain(err)
			owes = err != nil
			cancel()
		}
		client.AllowRebalance()
	}
}

// Setup, Cleanup and ConsumeClaim make it Sarama's handler.
func (own *member) Setup(sarama.ConsumerGroupSession) error { return nil }

// Cleanup has nothing to do: each batch has been committed.
func (own *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim prints and commits what is there of one partition, until the session ends.
func (own *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		own.saw(message.Partition, message.Offset)
		session.MarkMessage(message, "")
		if len(claim.Messages()) == 0 {
			own.flush()
			session.Commit()
		}
	}
	own.flush()
	return nil
}

func (own *member) sarama(stop context.Context) {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = session
	config.Consumer.Group.Heartbeat.Interval = heartbeat
	config.Consumer.Return.Errors = true
	steps.Check(own.protocol == "range", "Sarama has no %s here", own.protocol)
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	var consumer sarama.ConsumerGroup
	for consumer == nil && stop.Err() == nil {
		var err error
		if consumer, err = sarama.NewConsumerGroup([]string{own.bootstrap}, own.group, config); err != nil {
			complain(err)
			time.Sleep(200 * time.Millisecond)
		}
	}
	if consumer == nil {
		return
	}
	go func() {
		for err := range consumer.Errors() {
			complain(err)
		}
	}()
	for stop.Err() == nil {
		if err := consumer.Consume(stop, []string{own.topic}, own); err != nil {
			complain(err)
			time.Sleep(200 * time.Millisecond)
		}
	}
	complain(consumer.Close())
}
