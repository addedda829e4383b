import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The driver of the Java client: {@code Driver COMMAND KEY=VALUE...}, see ../README.md. */
public final class Driver {
    /** Whether the standard input has ended, by which the runner ends what has no count. */
    static volatile boolean isStopped;

    private Driver() {}

    /** Runs one command. */
    public static void main(String[] arguments) {
        Thread watch = new Thread(Driver::awaitEnd);
        watch.setDaemon(true);
        watch.start();
        Map<String, String> spec = spec(arguments);
        switch (arguments[0]) {
            case "about" -> tell("\"versions\":{\"kafka-clients\":" + quoted(version()) + "}");
            case "produce" -> produce(spec);
            case "consume" -> consume(spec);
            case "member" -> Member.share(spec);
            case "topics" -> Admins.list(spec);
            case "admin" -> Admins.lookAfter(spec);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        tell("\"done\":true");
    }

    /** What stands behind the command. */
    static Map<String, String> spec(String[] arguments) {
        Map<String, String> spec = new HashMap<>();
        for (int place = 1; place < arguments.length; place++) {
            String[] parts = arguments[place].split("=", 2);
            spec.put(parts[0], parts[1]);
        }
        return spec;
    }

    /** The version that the client's jar says of itself. */
    private static String version() {
        Properties told = new Properties();
        try (InputStream stream = Driver.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            told.load(stream);
        } catch (IOException problem) {
            throw new UncheckedIOException(problem);
        }
        return told.getProperty("version");
    }

    private static void awaitEnd() {
        try {
            System.in.read();
        } catch (IOException problem) {
            System.err.println(problem);
        }
        isStopped = true;
    }

    /** Sends records, with the defaults of the client wherever the spec does not say otherwise. */
    private static void produce(Map<String, String> spec) {
        Properties options = new Properties();
        options.put("bootstrap.servers", spec.get("bootstrap"));
        options.put("acks", spec.get("acks").equals("-1") ? "all" : spec.get("acks"));
        options.put("compression.type", spec.get("codec"));
        options.put("enable.idempotence", String.valueOf(spec.get("idempotent").equals("1")));
        if (number(spec, "bytes_max") > 0) {
            options.put("max.request.size", spec.get("bytes_max"));
        }
        long count = number(spec, "count");
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(options, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (long number = 0; (count == 0 || number < count) && !isStopped; number++) {
                long sent = number;
                producer.send(record(spec, number), (metadata, problem) -> tellSent(sent, metadata == null ? -1 : metadata.offset(), problem));
                pause(number(spec, "pace_ms"));
            }
        }
    }

    private static ProducerRecord<byte[], byte[]> record(Map<String, String> spec, long number) {
        boolean mixed = number(spec, "mixed") == 1;
        String value = spec.get("producer") + " " + number + " ";
        value += ".".repeat((int) Math.max(0, number(spec, "size") - value.length()));
        Long time = number(spec, "time_ms") > 0 ? number(spec, "time_ms") + number : null;
        ProducerRecord<byte[], byte[]> record =
                new ProducerRecord<>(
                        spec.get("topic"),
                        null,
                        time,
                        mixed && number % 3 == 0 ? null : ("key " + key(spec, number)).getBytes(StandardCharsets.UTF_8),
                        mixed && number % 5 == 0 && number % 3 != 0 ? null : value.getBytes(StandardCharsets.UTF_8));
        if (mixed && number % 2 == 1) {
            record.headers().add("first", "1".getBytes(StandardCharsets.UTF_8));
            record.headers().add("second", "2".getBytes(StandardCharsets.UTF_8));
        }
        return record;
    }

    private static long key(Map<String, String> spec, long number) {
        long keys = number(spec, "keys");
        return keys == 0 ? number : number % keys;
    }

    /** Reads partition 0 from a place on. */
    private static void consume(Map<String, String> spec) {
        Properties options = new Properties();
        options.put("bootstrap.servers", spec.get("bootstrap"));
        options.put("auto.offset.reset", "earliest");
        long count = number(spec, "count");
        TopicPartition partition = new TopicPartition(spec.get("topic"), 0);
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(options, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            seek(consumer, partition, spec.get("from"));
            tell("\"ready\":true");
            long seen = 0;
            while ((count == 0 || seen < count) && !isStopped) {
                try {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                        tellRead(record);
                        seen++;
                    }
                } catch (KafkaException problem) {
                    tell("\"error\":" + quoted(problem.toString()));
                }
            }
        }
    }

    private static void seek(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, String from) {
        String[] parts = from.split(":", 2);
        switch (parts[0]) {
            case "earliest" -> consumer.seekToBeginning(List.of(partition));
            case "latest" -> consumer.seekToEnd(List.of(partition));
            case "time" ->
                    consumer.seek(
                            partition,
                            consumer.offsetsForTimes(Map.of(partition, Long.parseLong(parts[1]))).get(partition).offset());
            default -> consumer.seek(partition, Long.parseLong(parts[1]));
        }
        consumer.position(partition); // so that the end is that of now
    }

    private static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException problem) {
            Thread.currentThread().interrupt();
        }
    }

    static long number(Map<String, String> spec, String name) {
        return Long.parseLong(spec.getOrDefault(name, "0"));
    }

    private static void tellSent(long number, long offset, Exception problem) {
        if (problem == null) {
            tell("\"acked\":" + number + ",\"offset\":" + offset);
        } else {
            tell("\"failed\":" + number + ",\"error\":" + quoted(problem.toString()));
        }
    }

    static void tellRead(ConsumerRecord<byte[], byte[]> record) {
        List<String> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add("[" + quoted(header.key()) + "," + quoted(text(header.value())) + "]");
        }
        tell(
                "\"read\":" + record.offset() + ",\"partition\":" + record.partition() + ",\"key\":" + quoted(text(record.key())) + ",\"value\":"
                        + quoted(text(record.value())) + ",\"headers\":[" + String.join(",", headers) + "],\"time_ms\":"
                        + record.timestamp() + (record.value() == null ? "" : ",\"size\":" + record.value().length));
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, 0, Math.min(bytes.length, 64), StandardCharsets.UTF_8);
    }

    static String quoted(String text) {
        return text == null ? "null" : "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("\\p{Cntrl}", " ") + "\"";
    }

    /** Writes one line, with the time. */
    static void tell(String fields) {
        String line = "{\"at\":" + System.currentTimeMillis() / 1000.0 + "," + fields + "}";
        write(line);
    }

    private static synchronized void write(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
