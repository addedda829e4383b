// The drivers of the clients for Go: `driver CLIENT COMMAND KEY=VALUE...`, see ../README.md.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Spec is what a driver is told to do.
type Spec struct {
	Bootstrap  string
	Topic      string
	Producer   string
	Count      int64
	PaceMS     int64
	Size       int
	Mixed      bool
	TimeMS     int64
	Codec      string
	Acks       int
	Idempotent bool
	BytesMax   int
	Keys       int64
	From       string
	Group      string
	Instance   string
	Coop       bool
	Session    time.Duration
}

// parse reads a spec of the form `key=value ...`.
func parse(arguments []string) Spec {
	given := map[string]string{}
	for _, argument := range arguments {
		name, value, _ := strings.Cut(argument, "=")
		given[name] = value
	}
	number := func(name string) int64 {
		value, _ := strconv.ParseInt(given[name], 10, 64)
		return value
	}
	return Spec{
		Bootstrap: given["bootstrap"], Topic: given["topic"], Producer: given["producer"],
		Count: number("count"), PaceMS: number("pace_ms"), Size: int(number("size")), Mixed: number("mixed") == 1,
		TimeMS: number("time_ms"), Codec: given["codec"], Acks: int(number("acks")),
		Idempotent: number("idempotent") == 1, BytesMax: int(number("bytes_max")), Keys: number("keys"), From: given["from"],
		Group: given["group"], Instance: given["instance"], Coop: number("cooperative") == 1,
		Session: time.Duration(number("session_ms")) * time.Millisecond,
	}
}

// Client is what each client can do.
type Client interface {
	Produce(spec Spec, numbers <-chan int64)
	Consume(spec Spec, stop <-chan struct{})
	Member(spec Spec, stop <-chan struct{})
	Topics(spec Spec)
	Admin(spec Spec)
}

var (
	output  = json.NewEncoder(os.Stdout)
	writing sync.Mutex
)

// Event is one line of the output.
type Event map[string]any

// Tell writes one line of the output, with the time.
func Tell(event Event) {
	event["at"] = float64(time.Now().UnixMicro()) / 1e6
	writing.Lock()
	defer writing.Unlock()
	if err := output.Encode(event); err != nil {
		os.Exit(1) // nobody listens any more
	}
}

// TellSent tells what became of a record that was sent.
func TellSent(number, offset int64, err error) {
	if err != nil {
		Tell(Event{"failed": number, "error": err.Error()})
		return
	}
	Tell(Event{"acked": number, "offset": offset})
}

// TellRead tells a record that was read.
func TellRead(partition int32, offset int64, key, value []byte, headers [][2]string, at time.Time) {
	event := Event{"read": offset, "partition": partition, "key": text(key), "value": text(value), "headers": headers, "time_ms": at.UnixMilli()}
	if value != nil {
		event["size"] = len(value)
	}
	Tell(event)
}

// TellStep tells what came of a step of an admin, which fails where there is an error.
func TellStep(step string, found any, err error) {
	if err != nil {
		fail(fmt.Errorf("%s: %w", step, err))
	}
	Tell(Event{"step": step, "found": found})
}

// TellCommitted tells that what was read is committed: the next offset of a partition.
func TellCommitted(partition int32, offset int64) {
	Tell(Event{"committed": offset, "partition": partition})
}

func text(bytes []byte) *string {
	if bytes == nil {
		return nil
	}
	told := string(bytes[:min(len(bytes), 64)])
	return &told
}

// numbers gives the records to send: so many, or until the standard input ends, at a pace.
func numbers(spec Spec, stop <-chan struct{}) <-chan int64 {
	given := make(chan int64)
	go func() {
		defer close(given)
		for number := int64(0); spec.Count == 0 || number < spec.Count; number++ {
			select {
			case <-stop:
				return
			case given <- number:
			}
			time.Sleep(time.Duration(spec.PaceMS) * time.Millisecond)
		}
	}()
	return given
}

// place parses where a reader begins: its kind, and the offset or time.
func place(from string) (string, int64) {
	kind, rest, _ := strings.Cut(from, ":")
	number, _ := strconv.ParseInt(rest, 10, 64)
	return kind, number
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	Tell(Event{"error": err.Error()})
	Tell(Event{"done": true})
	os.Exit(1)
}

func main() {
	if len(os.Args) < 3 {
		fail(fmt.Errorf("usage: %s CLIENT COMMAND [KEY=VALUE]...", os.Args[0]))
	}
	client := map[string]Client{"sarama": Sarama{}, "franz-go": Franz{}}[os.Args[1]]
	if client == nil {
		fail(fmt.Errorf("unknown client %q", os.Args[1]))
	}
	spec := parse(os.Args[3:])
	stop := make(chan struct{})
	go func() {
		bufio.NewReader(os.Stdin).ReadString('\n')
		close(stop)
	}()
	switch os.Args[2] {
	case "about":
		Tell(Event{"versions": versions()})
	case "produce":
		client.Produce(spec, numbers(spec, stop))
	case "consume":
		client.Consume(spec, stop)
	case "member":
		client.Member(spec, stop)
	case "topics":
		client.Topics(spec)
	case "admin":
		client.Admin(spec)
	default:
		fail(fmt.Errorf("unknown command %q", os.Args[2]))
	}
	Tell(Event{"done": true})
}
