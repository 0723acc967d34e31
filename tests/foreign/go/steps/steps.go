// Package steps holds what the programs of ../../README.md share: records and comparisons.
package steps

import (
	"fmt"
	"log"
	"os"
	"reflect"
	"strconv"
	"time"
)

// SharedPartitions of the topic that a group reads.
const SharedPartitions = 6

// Patience with any one step.
const Patience = 60 * time.Second

// Arguments of every program, and the names that follow from them.
type Arguments struct {
	Bootstrap, CodecsTopic, SharedTopic, Group string
	Count, Members                             int
}

// Header of a record.
type Header struct {
	Key, Value string
}

// Record as sent and as read; nil keys and values are null.
type Record struct {
	Key, Value []byte
	Headers    []Header
}

// Parse reads the command line.
func Parse() Arguments {
	log.SetFlags(0)
	if len(os.Args) != 5 {
		log.Fatal("usage: HOST:PORT PREFIX COUNT MEMBERS")
	}
	count, err := strconv.Atoi(os.Args[3])
	Must(err, "COUNT")
	members, err := strconv.Atoi(os.Args[4])
	Must(err, "MEMBERS")
	prefix := os.Args[2]
	return Arguments{
		Bootstrap: os.Args[1], CodecsTopic: prefix + "-codecs", SharedTopic: prefix + "-shared", Group: prefix,
		Count: count, Members: members,
	}
}

// Records that are sent under a label.
func Records(label string, count int) []Record {
	records := make([]Record, count)
	for n := range records {
		record := &records[n]
		if n%3 != 0 {
			record.Key = fmt.Appendf(nil, "key-%d", n)
		}
		if n%6 != 4 {
			record.Value = fmt.Appendf(nil, "%s %d", label, n)
		}
		record.Headers = []Header{{"number", strconv.Itoa(n)}, {"empty", ""}}
	}
	return records
}

// Label of a batch of records.
func Label(codec string, idempotent bool) string {
	if idempotent {
		return codec + "+idempotent"
	}
	return codec + "+plain"
}

// Must ends the program if a call failed.
func Must(err error, what string) {
	if err != nil {
		log.Fatalf("%s: %v", what, err)
	}
}

// Check ends the program unless what was wanted holds.
func Check(holds bool, format string, values ...any) {
	if !holds {
		log.Fatalf(format, values...)
	}
}

// Same ends the program unless the records read are those sent, in order.
func Same(sent, got []Record, what string) {
	Check(len(sent) == len(got), "%s: sent %d records, read %d", what, len(sent), len(got))
	for n := range sent {
		Check(reflect.DeepEqual(sent[n], got[n]), "%s: record %d: sent %+v, read %+v", what, n, sent[n], got[n])
	}
}

// Until asks again until it holds.
func Until(what string, holds func() bool) {
	deadline := time.Now().Add(Patience)
	for !holds() {
		Check(time.Now().Before(deadline), "not within %s: %s", Patience, what)
		time.Sleep(50 * time.Millisecond)
	}
}
