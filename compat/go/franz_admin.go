package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func franzAdmin(spec Spec) *kadm.Client {
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(spec.Bootstrap, ",")...))
	if err != nil {
		fail(err)
	}
	return kadm.NewClient(client)
}

// Topics lists all topics.
func (Franz) Topics(spec Spec) {
	client := franzAdmin(spec)
	defer client.Close()
	found, err := client.ListTopics(context.Background())
	if err != nil {
		fail(err)
	}
	Tell(Event{"topics": len(found)})
}

// Admin looks after topics and groups, step by step.
func (Franz) Admin(spec Spec) {
	ctx, client, made := context.Background(), franzAdmin(spec), spec.Topic+"-made"
	defer client.Close()
	day, days := "86400000", "172800000"

	created, err := client.CreateTopic(ctx, 2, -1, map[string]*string{"retention.ms": &day}, made)
	if err == nil {
		err = created.Err
	}
	TellStep("create", nil, err)
	tellPartitions := func() {
		described, err := client.ListTopics(ctx, made)
		TellStep("partitions", len(described[made].Partitions), err)
	}
	tellPartitions()
	grown, err := client.UpdatePartitions(ctx, 4, made)
	if err == nil {
		err = grown.Error()
	}
	TellStep("create partitions", nil, err)
	tellPartitions()
	tellConfig := func() {
		described, err := client.DescribeTopicConfigs(ctx, made)
		value := ""
		for _, config := range described[0].Configs {
			if config.Key == "retention.ms" {
				value = config.MaybeValue()
			}
		}
		TellStep("config", value, err)
	}
	tellConfig()
	altered, err := client.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: &days}}, made)
	if err == nil {
		err = altered[0].Err
	}
	TellStep("alter config", nil, err)
	tellConfig()
	topics, err := client.ListTopics(ctx)
	TellStep("list", topics.Has(made), err)
	var before kadm.Offsets
	before.AddOffset(spec.Topic, 0, 5, -1)
	deleted, err := client.DeleteRecords(ctx, before)
	if err == nil {
		err = deleted.Error()
	}
	low, _ := deleted.Lookup(spec.Topic, 0)
	TellStep("delete records", low.LowWatermark, err)
	franzAdminOfGroup(ctx, client, spec)
	gone, err := client.DeleteTopic(ctx, made)
	if err == nil {
		err = gone.Err
	}
	TellStep("delete", nil, err)
}

func franzAdminOfGroup(ctx context.Context, client *kadm.Client, spec Spec) {
	tellListed := func() {
		groups, err := client.ListGroups(ctx)
		_, isThere := groups[spec.Group]
		TellStep("groups", isThere, err)
	}
	tellListed()
	described, err := client.DescribeGroups(ctx, spec.Group)
	TellStep("group", strings.ToLower(described[spec.Group].State), err)
	offsets, err := client.FetchOffsets(ctx, spec.Group)
	committed, isThere := offsets.Lookup(spec.Topic, 0)
	if err == nil && !isThere {
		err = fmt.Errorf("no offset of %s", spec.Topic)
	}
	TellStep("offset", committed.At, err)
	deleted, err := client.DeleteGroup(ctx, spec.Group)
	if err == nil {
		err = deleted.Err
	}
	TellStep("delete group", nil, err)
	tellListed()
}
