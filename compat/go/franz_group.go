package main

import (
	"context"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Member shares the partitions of a topic with the other members of a group, and commits what was read.
func (Franz) Member(spec Spec, stop <-chan struct{}) {
	held := &franzHeld{partitions: map[int32]bool{}}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(spec.Bootstrap, ",")...), kgo.ConsumerGroup(spec.Group),
		kgo.ConsumeTopics(spec.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.SessionTimeout(spec.Session), kgo.OnPartitionsAssigned(held.add), kgo.OnPartitionsRevoked(held.remove),
		kgo.OnPartitionsLost(held.remove),
	}
	if spec.Instance != "" {
		options = append(options, kgo.InstanceID(spec.Instance))
	}
	if !spec.Coop { // cooperative is its default
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		fail(err)
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-stop
		cancel()
	}()
	for ctx.Err() == nil {
		soon, done := context.WithTimeout(ctx, 100*time.Millisecond) // what was not committed is, when nothing comes
		fetches := client.PollFetches(soon)
		done()
		if soon.Err() != nil && fetches.Empty() {
			fetches = nil
		}
		fetches.EachError(func(_ string, _ int32, err error) { Tell(Event{"error": err.Error()}) })
		read := map[int32]int64{}
		fetches.EachRecord(func(record *kgo.Record) {
			franzTellRead(record)
			read[record.Partition] = record.Offset + 1
		})
		if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
			Tell(Event{"uncommitted": err.Error()})
			continue
		}
		for partition, offset := range read {
			TellCommitted(partition, offset)
		}
	}
}

// franzHeld has the partitions of a member, and tells them when they change.
type franzHeld struct {
	changing   sync.Mutex
	partitions map[int32]bool
}

func (held *franzHeld) add(_ context.Context, _ *kgo.Client, assigned map[string][]int32) {
	held.change(assigned, true)
}

func (held *franzHeld) remove(_ context.Context, _ *kgo.Client, revoked map[string][]int32) {
	held.change(revoked, false)
}

func (held *franzHeld) change(partitions map[string][]int32, isHeld bool) {
	held.changing.Lock()
	defer held.changing.Unlock()
	for _, each := range partitions {
		for _, partition := range each {
			if isHeld {
				held.partitions[partition] = true
			} else {
				delete(held.partitions, partition)
			}
		}
	}
	tellAssigned(held.partitions)
}

func tellAssigned(held map[int32]bool) {
	told := []int32{}
	for partition := range held {
		told = append(told, partition)
	}
	sort.Slice(told, func(a, b int) bool { return told[a] < told[b] })
	Tell(Event{"assigned": told})
}
