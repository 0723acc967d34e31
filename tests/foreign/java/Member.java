import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One member of a group, which prints the partition and offset of each record before it commits it.
 * Usage: Member HOST:PORT GROUP TOPIC PROTOCOL; SIGTERM ends it in order.
 */
public final class Member {
    private static volatile boolean stopping;
    /** The last commit failed: nothing more may come that would be committed after it. */
    private static boolean owes;

    public static void main(String[] arguments) {
        String protocol = arguments[3];
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        if (protocol.equals("consumer")) {
            settings.put("group.protocol", "consumer");
        } else {
            settings.put("session.timeout.ms", 6000);
            settings.put("heartbeat.interval.ms", 500);
            settings.put("partition.assignment.strategy", protocol.equals("range")
                    ? "org.apache.kafka.clients.consumer.RangeAssignor"
                    : "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
        }
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            try {
                main.join(30_000);
            } catch (InterruptedException ignored) {
                Thread.currentThread().interrupt();
            }
        }));
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(arguments[2]), new Listener());
            while (!stopping) {
                readSome(consumer);
            }
        }
    }

    private static void readSome(KafkaConsumer<byte[], byte[]> consumer) {
        try {
            StringBuilder seen = new StringBuilder();
            Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(200))) {
                seen.append(each.partition()).append(' ').append(each.offset()).append('\n');
                next.put(new TopicPartition(each.topic(), each.partition()), new OffsetAndMetadata(each.offset() + 1));
            }
            System.out.print(seen);
            System.out.flush();
            if (!next.isEmpty()) {
                owes = true;
                consumer.commitSync(next);
                owes = false;
            } else if (owes) {
                // How far it has read of what it has now.
                consumer.commitSync();
                owes = false;
            }
        } catch (KafkaException error) {
            System.err.println(java.time.LocalTime.now() + " " + error);
        }
    }

    /** With a listener a rebalance goes on only while the member polls. */
    private static final class Listener implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {}

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}
    }
}
