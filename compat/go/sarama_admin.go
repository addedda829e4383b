package main

import (
	"strings"

	"github.com/IBM/sarama"
)

func saramaAdmin(spec Spec) sarama.ClusterAdmin {
	admin, err := sarama.NewClusterAdmin(strings.Split(spec.Bootstrap, ","), sarama.NewConfig())
	if err != nil {
		fail(err)
	}
	return admin
}

// Topics lists all topics.
func (Sarama) Topics(spec Spec) {
	client, err := sarama.NewClient(strings.Split(spec.Bootstrap, ","), sarama.NewConfig())
	if err != nil {
		fail(err)
	}
	defer client.Close()
	found, err := client.Topics()
	if err != nil {
		fail(err)
	}
	Tell(Event{"topics": len(found)})
}

// Admin looks after topics and groups, step by step.
func (Sarama) Admin(spec Spec) {
	admin, made := saramaAdmin(spec), spec.Topic+"-made"
	defer admin.Close()
	day, days := "86400000", "172800000"

	detail := &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: -1, ConfigEntries: map[string]*string{"retention.ms": &day}}
	TellStep("create", nil, admin.CreateTopic(made, detail, false))
	tellPartitions := func() {
		described, err := admin.DescribeTopics([]string{made})
		count := 0
		if err == nil {
			count = len(described[0].Partitions)
		}
		TellStep("partitions", count, err)
	}
	tellPartitions()
	TellStep("create partitions", nil, admin.CreatePartitions(made, 4, nil, false))
	tellPartitions()
	tellConfig := func() {
		resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: made, ConfigNames: []string{"retention.ms"}}
		described, err := admin.DescribeConfig(resource)
		value := ""
		for _, config := range described {
			value = config.Value
		}
		TellStep("config", value, err)
	}
	tellConfig()
	entry := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &days}
	entries := map[string]sarama.IncrementalAlterConfigsEntry{"retention.ms": entry}
	TellStep("alter config", nil, admin.IncrementalAlterConfig(sarama.TopicResource, made, entries, false))
	tellConfig()
	topics, err := admin.ListTopics()
	_, isThere := topics[made]
	TellStep("list", isThere, err)
	TellStep("delete records", 5, admin.DeleteRecords(spec.Topic, map[int32]int64{0: 5}))
	saramaAdminOfGroup(admin, spec)
	TellStep("delete", nil, admin.DeleteTopic(made))
}

func saramaAdminOfGroup(admin sarama.ClusterAdmin, spec Spec) {
	tellListed := func() {
		groups, err := admin.ListConsumerGroups()
		_, isThere := groups[spec.Group]
		TellStep("groups", isThere, err)
	}
	tellListed()
	described, err := admin.DescribeConsumerGroups([]string{spec.Group})
	state := ""
	if err == nil {
		state = strings.ToLower(described[0].State)
	}
	TellStep("group", state, err)
	offsets, err := admin.ListConsumerGroupOffsets(spec.Group, map[string][]int32{spec.Topic: {0}})
	committed := int64(-1)
	if err == nil {
		committed = offsets.GetBlock(spec.Topic, 0).Offset
	}
	TellStep("offset", committed, err)
	TellStep("delete group", nil, admin.DeleteConsumerGroup(spec.Group))
	tellListed()
}
