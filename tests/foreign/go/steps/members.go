package steps

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Value that a group reads, and the partition it is sent to.
type Value struct {
	Text      string
	Partition int32
}

// Members of a group: how many partitions each has, and what they read.
type Members struct {
	lock     sync.Mutex
	assigned []int
	values   []string
	owing    sync.WaitGroup // those that have not committed
}

// Assigned tells how many partitions a member has.
func (all *Members) Assigned(member, partitions int) {
	all.lock.Lock()
	defer all.lock.Unlock()
	all.assigned[member] = partitions
}

// Read tells what a member read.
func (all *Members) Read(value string) {
	all.lock.Lock()
	defer all.lock.Unlock()
	all.values = append(all.values, value)
}

// HaveShares is true when each member has its partitions.
func (all *Members) HaveShares() bool {
	all.lock.Lock()
	defer all.lock.Unlock()
	share := SharedPartitions / len(all.assigned)
	return !slices.ContainsFunc(all.assigned, func(own int) bool { return own != share })
}

// Committed tells that a member has committed, and waits until all have: when one leaves, the others lose their
// partitions, and with them what they have not committed.
func (all *Members) Committed() {
	all.owing.Done()
	all.owing.Wait()
}

func (all *Members) count() int {
	all.lock.Lock()
	defer all.lock.Unlock()
	return len(all.values)
}

// Sharing is the step with groups, as one library does it.
type Sharing struct {
	// Produce sends values to the shared topic.
	Produce func(values []Value)
	// Run is one member, until stop: then it commits and leaves.
	Run func(stop context.Context, member int, all *Members)
	// Ready is true when so many members have their partitions.
	Ready func(all *Members, members int) bool
}

// Share does the step: several members read what is sent once they have their partitions, and another one
// reads what comes after they left.
func (sharing Sharing) Share(arguments Arguments) {
	var sent []Value
	send := func(round string) {
		sent = nil
		for n := range arguments.Count {
			sent = append(sent, Value{fmt.Sprintf("%s %d", round, n), int32(n % SharedPartitions)})
		}
		sharing.Produce(sent)
	}
	got := sharing.consume(arguments.Members, arguments.Count, func() { send("first") })
	sameValues(sent, got, "a group of several")
	send("second")
	got = sharing.consume(1, arguments.Count, func() {})
	sameValues(sent, got, "a group that goes on")
}

// consume starts members, calls once each has its partitions, and returns what they read by then.
func (sharing Sharing) consume(count int, wanted int, onceAssigned func()) []string {
	all := &Members{assigned: make([]int, count)}
	all.owing.Add(count)
	stop, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	for member := range count {
		ended.Go(func() { sharing.Run(stop, member, all) })
	}
	Until("every member has its partitions", func() bool { return sharing.Ready(all, count) })
	onceAssigned()
	Until("the members read all", func() bool { return all.count() >= wanted })
	time.Sleep(100 * time.Millisecond) // for what must not come
	cancel()
	ended.Wait()
	return all.values
}

// sameValues ends the program unless each value was read once, in any order.
func sameValues(sent []Value, got []string, what string) {
	var texts []string
	for _, value := range sent {
		texts = append(texts, value.Text)
	}
	slices.Sort(texts)
	slices.Sort(got)
	Check(slices.Equal(texts, got), "%s: sent %d values, read %d or others", what, len(texts), len(got))
}
