import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A member of a group: shares the partitions of a topic with the others, and commits what it has read. */
final class Member implements ConsumerRebalanceListener {
    private final TreeSet<Integer> held = new TreeSet<>();
    private final Map<TopicPartition, OffsetAndMetadata> read = new HashMap<>(); // and not yet committed

    static void share(Map<String, String> spec) {
        Properties options = new Properties();
        options.put("bootstrap.servers", spec.get("bootstrap"));
        options.put("group.id", spec.get("group"));
        options.put("enable.auto.commit", "false");
        options.put("auto.offset.reset", "earliest");
        options.put("session.timeout.ms", spec.get("session_ms"));
        if (!spec.getOrDefault("instance", "").isEmpty()) {
            options.put("group.instance.id", spec.get("instance"));
        }
        if (Driver.number(spec, "cooperative") == 1) {
            options.put("partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
        }
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(options, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            Member member = new Member();
            consumer.subscribe(List.of(spec.get("topic")), member);
            while (!Driver.isStopped) {
                member.readAndCommit(consumer);
            }
        }
    }

    private void readAndCommit(KafkaConsumer<byte[], byte[]> consumer) {
        try {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                Driver.tellRead(record);
                read.put(
                        new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
        } catch (KafkaException problem) {
            Driver.tell("\"error\":" + Driver.quoted(problem.toString()));
        }
        if (read.isEmpty()) {
            return;
        }
        try {
            consumer.commitSync(read);
            read.forEach(
                    (partition, offset) ->
                            Driver.tell("\"committed\":" + offset.offset() + ",\"partition\":" + partition.partition()));
            read.clear();
        } catch (KafkaException problem) {
            Driver.tell("\"uncommitted\":" + Driver.quoted(problem.toString()));
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        partitions.forEach(partition -> held.add(partition.partition()));
        Driver.tell("\"assigned\":" + held);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        partitions.forEach(partition -> held.remove(partition.partition()));
        partitions.forEach(read::remove);
        Driver.tell("\"assigned\":" + held);
    }
}
