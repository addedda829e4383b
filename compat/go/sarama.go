package main

import (
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// Sarama drives github.com/IBM/sarama, with the defaults of its configuration wherever a spec does not say otherwise.
type Sarama struct{}

var saramaCodecs = map[string]sarama.CompressionCodec{
	"gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

// Produce sends the records of these numbers.
func (Sarama) Produce(spec Spec, numbers <-chan int64) {
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.RequiredAcks(spec.Acks)
	config.Producer.Compression = saramaCodecs[spec.Codec]
	if spec.Idempotent { // what its documentation asks for
		config.Producer.Idempotent = true
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Net.MaxOpenRequests = 1
	}
	if spec.BytesMax > 0 {
		config.Producer.MaxMessageBytes = spec.BytesMax
	}
	producer, err := sarama.NewAsyncProducer(strings.Split(spec.Bootstrap, ","), config)
	if err != nil {
		fail(err)
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		successes, errors := producer.Successes(), producer.Errors()
		for successes != nil || errors != nil {
			select {
			case sent, ok := <-successes:
				if !ok {
					successes = nil
					continue
				}
				TellSent(sent.Metadata.(int64), sent.Offset, nil)
			case lost, ok := <-errors:
				if !ok {
					errors = nil
					continue
				}
				TellSent(lost.Msg.Metadata.(int64), -1, lost.Err)
			}
		}
	}()
	for number := range numbers {
		producer.Input() <- saramaMessage(spec, number)
	}
	producer.AsyncClose()
	<-told
}

func saramaMessage(spec Spec, number int64) *sarama.ProducerMessage {
	record := RecordOf(spec, number)
	message := &sarama.ProducerMessage{Topic: spec.Topic, Metadata: number}
	if record.Key != nil {
		message.Key = sarama.StringEncoder(*record.Key)
	}
	if record.Value != nil {
		message.Value = sarama.StringEncoder(*record.Value)
	}
	if record.TimeMS > 0 {
		message.Timestamp = time.UnixMilli(record.TimeMS)
	}
	for _, header := range record.Headers {
		message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header.Name), Value: []byte(header.Value)})
	}
	return message
}

// Consume reads partition 0 from a place on.
func (Sarama) Consume(spec Spec, stop <-chan struct{}) {
	config := sarama.NewConfig()
	config.Consumer.Return.Errors = true
	client, err := sarama.NewClient(strings.Split(spec.Bootstrap, ","), config)
	if err != nil {
		fail(err)
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		fail(err)
	}
	kind, offset := place(spec.From)
	switch kind {
	case "earliest":
		offset = sarama.OffsetOldest
	case "latest":
		offset = sarama.OffsetNewest
	case "time":
		if offset, err = client.GetOffset(spec.Topic, 0, offset); err != nil {
			fail(err)
		}
	}
	reader, err := consumer.ConsumePartition(spec.Topic, 0, offset)
	if err != nil {
		fail(err)
	}
	Tell(Event{"ready": true})
	for count := int64(0); spec.Count == 0 || count < spec.Count; {
		select {
		case <-stop:
			return
		case problem, ok := <-reader.Errors():
			if ok {
				Tell(Event{"error": problem.Err.Error()})
			}
		case message, ok := <-reader.Messages():
			if !ok {
				Tell(Event{"error": "the consumer has ended"})
				return
			}
			saramaTellRead(message)
			count++
		}
	}
}

func saramaTellRead(message *sarama.ConsumerMessage) {
	headers := [][2]string{}
	for _, header := range message.Headers {
		headers = append(headers, [2]string{string(header.Key), string(header.Value)})
	}
	TellRead(message.Partition, message.Offset, message.Key, message.Value, headers, message.Timestamp)
}
