package main

import (
	"context"
	"errors"
	"strings"

	"github.com/IBM/sarama"
)

// Member shares the partitions of a topic with the other members of a group, and commits what was read.
func (Sarama) Member(spec Spec, stop <-chan struct{}) {
	config := sarama.NewConfig()
	config.Consumer.Return.Errors = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = spec.Session
	config.Consumer.Group.Heartbeat.Interval = min(config.Consumer.Group.Heartbeat.Interval, spec.Session/3)
	config.Consumer.Group.InstanceId = spec.Instance
	group, err := sarama.NewConsumerGroup(strings.Split(spec.Bootstrap, ","), spec.Group, config)
	if err != nil {
		fail(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-stop
		cancel()
	}()
	go func() {
		for problem := range group.Errors() {
			Tell(Event{"error": problem.Error()})
		}
	}()
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{spec.Topic}, saramaMember{}); err != nil && !errors.Is(err, context.Canceled) {
			Tell(Event{"error": err.Error()})
		}
	}
	if err := group.Close(); err != nil {
		Tell(Event{"error": err.Error()})
	}
}

type saramaMember struct{}

// Setup tells which partitions the member has.
func (saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	held := map[int32]bool{}
	for _, partitions := range session.Claims() {
		for _, partition := range partitions {
			held[partition] = true
		}
	}
	tellAssigned(held)
	return nil
}

// Cleanup tells that the member has none any more.
func (saramaMember) Cleanup(sarama.ConsumerGroupSession) error {
	tellAssigned(nil)
	return nil
}

// ConsumeClaim reads one partition. A commit has no answer in this client, only an error elsewhere: none is told.
func (saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, isOpen := <-claim.Messages():
			if !isOpen {
				return nil
			}
			saramaTellRead(message)
			session.MarkMessage(message, "")
			if len(claim.Messages()) == 0 {
				session.Commit()
			}
		case <-session.Context().Done():
			return nil
		}
	}
}
