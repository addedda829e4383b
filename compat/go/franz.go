package main

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Franz drives github.com/twmb/franz-go, with its defaults wherever a spec does not say otherwise.
type Franz struct{}

var franzCodecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

var franzAcks = map[int]kgo.Acks{-1: kgo.AllISRAcks(), 0: kgo.NoAck(), 1: kgo.LeaderAck()}

// Produce sends the records of these numbers.
func (Franz) Produce(spec Spec, numbers <-chan int64) {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(spec.Bootstrap, ",")...), kgo.AllowAutoTopicCreation(),
		kgo.RequiredAcks(franzAcks[spec.Acks]), kgo.ProducerBatchCompression(franzCodecs[spec.Codec]),
	}
	if !spec.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	if spec.BytesMax > 0 {
		options = append(options, kgo.ProducerBatchMaxBytes(int32(spec.BytesMax)))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		fail(err)
	}
	defer client.Close()
	var sent sync.WaitGroup
	for number := range numbers {
		sent.Add(1)
		client.Produce(context.Background(), franzRecord(spec, number), func(record *kgo.Record, err error) {
			TellSent(number, record.Offset, err)
			sent.Done()
		})
	}
	sent.Wait()
}

func franzRecord(spec Spec, number int64) *kgo.Record {
	made := RecordOf(spec, number)
	record := &kgo.Record{Topic: spec.Topic}
	if made.Key != nil {
		record.Key = []byte(*made.Key)
	}
	if made.Value != nil {
		record.Value = []byte(*made.Value)
	}
	if made.TimeMS > 0 {
		record.Timestamp = time.UnixMilli(made.TimeMS)
	}
	for _, header := range made.Headers {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Name, Value: []byte(header.Value)})
	}
	return record
}

// Consume reads partition 0 from a place on.
func (Franz) Consume(spec Spec, stop <-chan struct{}) {
	kind, number := place(spec.From)
	offset := kgo.NewOffset()
	switch kind {
	case "earliest":
		offset = offset.AtStart()
	case "latest":
		offset = offset.AtEnd()
	case "time":
		offset = offset.AfterMilli(number)
	default:
		offset = offset.At(number)
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(spec.Bootstrap, ",")...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{spec.Topic: {0: offset}}),
	)
	if err != nil {
		fail(err)
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-stop
		cancel()
	}()
	Tell(Event{"ready": true})
	for count := int64(0); spec.Count == 0 || count < spec.Count; {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return
		}
		fetches.EachError(func(_ string, _ int32, err error) { Tell(Event{"error": err.Error()}) })
		fetches.EachRecord(func(record *kgo.Record) {
			franzTellRead(record)
			count++
		})
	}
}

func franzTellRead(record *kgo.Record) {
	headers := [][2]string{}
	for _, header := range record.Headers {
		headers = append(headers, [2]string{header.Key, string(header.Value)})
	}
	TellRead(record.Partition, record.Offset, record.Key, record.Value, headers, record.Timestamp)
}
