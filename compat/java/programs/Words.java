import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts how often each word came, at least once, with Kafka Streams: {@code Words count KEY=VALUE...}. What was counted is
 * kept in a store whose changes lie in a topic, and each new count goes to the topic {@code to}.
 */
public final class Words {
    private Words() {}

    /** Counts until the standard input ends. */
    public static void main(String[] arguments) throws Exception {
        Map<String, String> spec = Driver.spec(arguments);
        Properties options = new Properties();
        options.put(StreamsConfig.APPLICATION_ID_CONFIG, spec.get("group"));
        options.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, spec.get("bootstrap"));
        options.put(StreamsConfig.STATE_DIR_CONFIG, spec.get("state"));
        options.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
        options.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        options.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        options.put("auto.offset.reset", "earliest");
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(spec.get("topic"))
                .groupByKey()
                .count()
                .toStream()
                .to(spec.get("to"), Produced.with(Serdes.String(), Serdes.Long()));
        try (KafkaStreams streams = new KafkaStreams(builder.build(), options)) {
            streams.setUncaughtExceptionHandler(problem -> {
                Driver.tell("\"error\":" + Driver.quoted(problem.toString()));
                return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            streams.start();
            Driver.tell("\"ready\":true");
            System.in.read();
        }
        Driver.tell("\"done\":true");
    }
}
