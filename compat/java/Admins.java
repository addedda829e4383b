import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** Looks after topics and groups, step by step. */
final class Admins {
    private Admins() {}

    /** Lists all topics. */
    static void list(Map<String, String> spec) {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", spec.get("bootstrap")))) {
            Driver.tell("\"topics\":" + admin.listTopics().names().get().size());
        } catch (ExecutionException | InterruptedException problem) {
            throw new IllegalStateException(problem);
        }
    }

    static void lookAfter(Map<String, String> spec) {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", spec.get("bootstrap")))) {
            lookAfter(admin, spec.get("topic"), spec.get("group"));
        } catch (ExecutionException | InterruptedException problem) {
            throw new IllegalStateException(problem);
        }
    }

    @SuppressWarnings("removal") // the names that 3.9 and 4.4 both have
    private static void lookAfter(Admin admin, String topic, String group)
            throws ExecutionException, InterruptedException {
        String made = topic + "-made";
        TopicPartition first = new TopicPartition(topic, 0);
        ConfigResource config = new ConfigResource(ConfigResource.Type.TOPIC, made);
        NewTopic wanted = new NewTopic(made, Optional.of(2), Optional.empty());
        admin.createTopics(List.of(wanted.configs(Map.of("retention.ms", "86400000")))).all().get();
        tell("create", "null");
        tellPartitions(admin, made);
        admin.createPartitions(Map.of(made, NewPartitions.increaseTo(4))).all().get();
        tell("create partitions", "null");
        tellPartitions(admin, made);
        tellConfig(admin, config);
        ConfigEntry entry = new ConfigEntry("retention.ms", "172800000");
        admin.incrementalAlterConfigs(Map.of(config, Set.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET))))
                .all()
                .get();
        tell("alter config", "null");
        tellConfig(admin, config);
        tell("list", admin.listTopics().names().get().contains(made));
        tell(
                "delete records",
                admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(5)))
                        .lowWatermarks()
                        .get(first)
                        .get()
                        .lowWatermark());
        tellListed(admin, group);
        String state = admin.describeConsumerGroups(List.of(group)).all().get().get(group).state().toString();
        tell("group", Driver.quoted(state.toLowerCase()));
        tell(
                "offset",
                admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(first).offset());
        admin.deleteConsumerGroups(List.of(group)).all().get();
        tell("delete group", "null");
        tellListed(admin, group);
        admin.deleteTopics(List.of(made)).all().get();
        tell("delete", "null");
    }

    private static void tellPartitions(Admin admin, String topic) throws ExecutionException, InterruptedException {
        tell("partitions", admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
    }

    private static void tellConfig(Admin admin, ConfigResource config) throws ExecutionException, InterruptedException {
        String value = admin.describeConfigs(List.of(config)).all().get().get(config).get("retention.ms").value();
        tell("config", Driver.quoted(value));
    }

    @SuppressWarnings("removal") // as above
    private static void tellListed(Admin admin, String group) throws ExecutionException, InterruptedException {
        tell(
                "groups",
                admin.listConsumerGroups().all().get().stream()
                        .anyMatch(listed -> listed.groupId().equals(group)));
    }

    private static void tell(String step, Object found) {
        Driver.tell("\"step\":" + Driver.quoted(step) + ",\"found\":" + found);
    }
}
