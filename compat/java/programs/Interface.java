import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaFilter;

/**
 * Asks what the user interfaces Kafbat and AKHQ ask, in the same portions: {@code Interface ask KEY=VALUE...}, of the topics
 * and groups whose names begin with {@code topic}. Kafbat asks in io.kafbat.ui.service.ReactiveAdminClient, AKHQ in
 * org.akhq.modules.AbstractKafkaWrapper.
 */
public final class Interface {
    private static final int TOPICS = 200;
    private static final int GROUPS = 25;

    private final Admin admin;
    private final String prefix;

    private Interface(Admin admin, String prefix) {
        this.admin = admin;
        this.prefix = prefix;
    }

    /** Asks everything once, and tells what each answer has, or with which error it came. */
    public static void main(String[] arguments) throws InterruptedException {
        Map<String, String> spec = Driver.spec(arguments);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", spec.get("bootstrap")))) {
            new Interface(admin, spec.get("topic")).askAll();
        }
        Driver.tell("\"done\":true");
    }

    private void askAll() throws InterruptedException {
        ask("describeCluster", () -> cluster(false));
        ask("describeCluster, with what is allowed", () -> cluster(true));
        ask("describeConfigs of brokers", this::brokers);
        ask("describeConfigs of topics", this::topicConfigs);
        ask("describeLogDirs", () -> admin.describeLogDirs(nodes()).allDescriptions().get().values().stream()
                .mapToInt(dirs -> dirs.size())
                .min()
                .orElse(0));
        ask("describeAcls", () -> admin.describeAcls(AclBindingFilter.ANY).values().get().size());
        ask("describeTopics", () -> admin.describeTopics(topics()).allTopicNames().get().size());
        ask("listOffsets, earliest", () -> offsets(OffsetSpec.earliest()));
        ask("listOffsets, latest", () -> offsets(OffsetSpec.latest()));
        ask("listOffsets, newest", () -> offsets(OffsetSpec.maxTimestamp()));
        ask("listGroups", () -> groups().size());
        ask("describeConsumerGroups", () -> admin.describeConsumerGroups(groups()).all().get().size());
        ask("listConsumerGroupOffsets", this::committed);
        ask("listPartitionReassignments", () -> admin.listPartitionReassignments().reassignments().get().size());
        ask("describeProducers", () -> admin.describeProducers(partitions()).all().get().size());
        ask("describeClientQuotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().size());
    }

    private static void ask(String question, Callable<Object> asked) throws InterruptedException {
        try {
            Driver.tell("\"asked\":" + Driver.quoted(question) + ",\"answer\":" + asked.call());
        } catch (ExecutionException problem) {
            String kind = problem.getCause().getClass().getSimpleName();
            Driver.tell("\"asked\":" + Driver.quoted(question) + ",\"refused\":" + Driver.quoted(kind));
        } catch (Exception problem) {
            Driver.tell("\"error\":" + Driver.quoted(question + ": " + problem));
        }
    }

    private int cluster(boolean withOperations) throws ExecutionException, InterruptedException {
        var told = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(withOperations));
        told.controller().get();
        told.clusterId().get();
        told.authorizedOperations().get();
        return told.nodes().get().size();
    }

    private List<Integer> nodes() throws ExecutionException, InterruptedException {
        return admin.describeCluster().nodes().get().stream().map(Node::id).toList();
    }

    /** How many of the two settings by which Kafbat decides what it shows each broker has, at least. */
    private long brokers() throws ExecutionException, InterruptedException {
        List<String> wanted = List.of("inter.broker.protocol.version", "delete.topic.enable");
        List<ConfigResource> asked = nodes().stream()
                .map(node -> new ConfigResource(ConfigResource.Type.BROKER, String.valueOf(node)))
                .toList();
        var options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        long least = wanted.size();
        for (Config config : admin.describeConfigs(asked, options).all().get().values()) {
            least = Math.min(least, wanted.stream().filter(name -> config.get(name) != null).count());
        }
        return least;
    }

    /** How many topics have a documented setting with the places that its value may come from. */
    private long topicConfigs() throws ExecutionException, InterruptedException {
        List<ConfigResource> asked =
                topics().stream().map(topic -> new ConfigResource(ConfigResource.Type.TOPIC, topic)).toList();
        var options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        return admin.describeConfigs(asked, options).all().get().values().stream()
                .map(config -> config.get("retention.ms"))
                .filter(entry -> entry != null && entry.documentation() != null && !entry.synonyms().isEmpty())
                .count();
    }

    private List<String> topics() throws ExecutionException, InterruptedException {
        return admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get().stream()
                .filter(name -> name.startsWith(prefix))
                .sorted()
                .limit(TOPICS)
                .toList();
    }

    private List<TopicPartition> partitions() throws ExecutionException, InterruptedException {
        List<TopicPartition> found = new ArrayList<>();
        admin.describeTopics(topics())
                .allTopicNames()
                .get()
                .forEach((topic, told) -> told.partitions()
                        .forEach(partition -> found.add(new TopicPartition(topic, partition.partition()))));
        return found;
    }

    private int offsets(OffsetSpec place) throws ExecutionException, InterruptedException {
        Map<TopicPartition, OffsetSpec> asked =
                partitions().stream().collect(Collectors.toMap(partition -> partition, partition -> place));
        return admin.listOffsets(asked).all().get().size();
    }

    private List<String> groups() throws ExecutionException, InterruptedException {
        return admin.listGroups().all().get().stream()
                .map(group -> group.groupId())
                .filter(name -> name.startsWith(prefix))
                .sorted()
                .limit(GROUPS)
                .toList();
    }

    private int committed() throws ExecutionException, InterruptedException {
        Map<String, ListConsumerGroupOffsetsSpec> asked = new HashMap<>();
        groups().forEach(group -> asked.put(group, new ListConsumerGroupOffsetsSpec()));
        return (int) admin.listConsumerGroupOffsets(asked).all().get().values().stream()
                .filter(offsets -> !offsets.isEmpty())
                .count();
    }
}
