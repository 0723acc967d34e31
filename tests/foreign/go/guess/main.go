// Prints which release of Kafka franz-go takes the broker for, by the versions that it serves.
// Usage: guess HOST:PORT
package main

import (
	"context"
	"fmt"
	"os"

	"foreign/steps"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	steps.Check(len(os.Args) == 2, "usage: HOST:PORT")
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]))
	steps.Must(err, "client")
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), steps.Patience)
	defer cancel()
	brokers, err := kadm.NewClient(client).ApiVersions(ctx)
	steps.Must(err, "ApiVersions")
	for _, broker := range brokers.Sorted() {
		steps.Must(broker.Err, "ApiVersions of a broker")
		fmt.Println(broker.VersionGuess())
	}
}
