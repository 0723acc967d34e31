import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.DescribeTopicsResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ConsumerGroupState;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Writes and reads with Kafka's own clients, from 2.8 to the newest: what the older ones have is used where there is a
 * choice. The steps are those of ../README.md.
 */
@SuppressWarnings({"deprecation", "removal"})
public final class WithKafkaClients {
    private static final int SHARED_PARTITIONS = 6;
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final String RETENTION_MS = "3600000";

    private final String bootstrap;
    private final String group;
    private final int count;
    private final int members;
    private final String codecsTopic;
    private final String sharedTopic;
    private final Admin admin;

    /** A record as sent and as read. */
    private record Sent(String key, String value, List<Header> headers) {}

    private WithKafkaClients(String[] arguments) {
        bootstrap = arguments[0];
        group = arguments[1];
        count = Integer.parseInt(arguments[2]);
        members = Integer.parseInt(arguments[3]);
        codecsTopic = group + "-codecs";
        sharedTopic = group + "-shared";
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] arguments) throws Exception {
        WithKafkaClients steps = new WithKafkaClients(arguments);
        steps.makeTopic();
        steps.alterTopic();
        List<Sent> sent = steps.produceEachCodec();
        check(steps.offset(OffsetSpec.earliest()) == 0, "the first offset");
        check(steps.offset(OffsetSpec.latest()) == sent.size(), "the end offset");
        same(sent, steps.read(sent.size()));
        steps.shareInGroup();
        steps.deleteAll();
        steps.admin.close();
        System.out.println("ok");
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    private static void same(List<Sent> sent, List<Sent> got) {
        check(sent.size() == got.size(), "sent " + sent.size() + ", read " + got.size());
        for (int n = 0; n < sent.size(); n++) {
            check(sent.get(n).equals(got.get(n)), "record " + n + ": " + sent.get(n) + ", " + got.get(n));
        }
    }

    private static void sameValues(List<String> sent, List<String> got) {
        Collections.sort(sent);
        Collections.sort(got);
        check(sent.equals(got), "sent " + sent.size() + " values, read " + got.size() + " or others");
    }

    private static void until(String what, BooleanSupplier holds) throws InterruptedException {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!holds.getAsBoolean()) {
            check(System.nanoTime() < deadline, "not in time: " + what);
            Thread.sleep(50);
        }
    }

    private Set<String> topics() throws Exception {
        return admin.listTopics().names().get();
    }

    private void makeTopic() throws Exception {
        List<NewTopic> wanted = List.of(new NewTopic(codecsTopic, 2, (short) 1));
        admin.createTopics(wanted).all().get();
        try {
            admin.createTopics(wanted).all().get();
            throw new AssertionError("the topic was made twice");
        } catch (ExecutionException error) {
            check(error.getCause() instanceof TopicExistsException, "made twice: " + error);
        }
        check(topics().contains(codecsTopic), "not listed");
    }

    private void alterTopic() throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, codecsTopic);
        ConfigEntry entry = new ConfigEntry("retention.ms", RETENTION_MS);
        AlterConfigOp set = new AlterConfigOp(entry, AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
        ConfigEntry described =
                admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms");
        check(described.value().equals(RETENTION_MS), "retention.ms is " + described.value());
        admin.createPartitions(Map.of(codecsTopic, NewPartitions.increaseTo(3))).all().get();
        int partitions = describe(codecsTopic).partitions().size();
        check(partitions == 3, partitions + " partitions");
    }

    /** Kafka 3.1 gave the method another name, and 4.0 has only that. */
    @SuppressWarnings("unchecked")
    private TopicDescription describe(String topic) throws Exception {
        Method all;
        try {
            all = DescribeTopicsResult.class.getMethod("allTopicNames");
        } catch (NoSuchMethodException older) {
            all = DescribeTopicsResult.class.getMethod("all");
        }
        Object described = all.invoke(admin.describeTopics(List.of(topic)));
        return ((KafkaFuture<Map<String, TopicDescription>>) described).get().get(topic);
    }

    private long offset(OffsetSpec which) throws Exception {
        TopicPartition partition = new TopicPartition(codecsTopic, 1);
        return admin.listOffsets(Map.of(partition, which)).partitionResult(partition).get().offset();
    }

    private KafkaProducer<String, String> producer(Map<String, Object> settings) {
        Map<String, Object> all = new java.util.HashMap<>(settings);
        all.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
    }

    private List<Sent> records(String label) {
        List<Sent> records = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            records.add(new Sent(
                    n % 3 == 0 ? null : "key-" + n,
                    n % 6 == 4 ? null : label + " " + n,
                    List.of(
                            new RecordHeader("number", Integer.toString(n).getBytes()),
                            new RecordHeader("empty", new byte[0]))));
        }
        return records;
    }

    private List<Sent> produceEachCodec() throws Exception {
        List<Sent> all = new ArrayList<>();
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            for (boolean idempotent : List.of(true, false)) {
                List<Sent> batch = records(codec + (idempotent ? "+idempotent" : "+plain"));
                try (KafkaProducer<String, String> producer = producer(Map.of(
                        "compression.type", codec, "enable.idempotence", idempotent, "linger.ms", 5))) {
                    List<Future<RecordMetadata>> answers = new ArrayList<>();
                    for (Sent each : batch) {
                        answers.add(producer.send(
                                new ProducerRecord<>(codecsTopic, 1, each.key(), each.value(), each.headers())));
                    }
                    for (int n = 0; n < count; n++) {
                        check(answers.get(n).get().offset() == all.size() + n, "offsets have a gap");
                    }
                }
                all.addAll(batch);
            }
        }
        return all;
    }

    private KafkaConsumer<String, String> consumer(Map<String, Object> settings) {
        Map<String, Object> all = new java.util.HashMap<>(settings);
        all.put("bootstrap.servers", bootstrap);
        all.put("enable.auto.commit", false);
        all.put("auto.offset.reset", "earliest");
        all.put("heartbeat.interval.ms", 500);
        return new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
    }

    private List<Sent> read(int wanted) {
        TopicPartition partition = new TopicPartition(codecsTopic, 1);
        List<Sent> got = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer(Map.of())) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            while (got.size() < wanted && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(500))) {
                    got.add(new Sent(each.key(), each.value(), List.of(each.headers().toArray())));
                }
            }
            check(consumer.endOffsets(List.of(partition)).get(partition) == wanted, "end offset");
            check(consumer.offsetsForTimes(Map.of(partition, 0L)).get(partition).offset() == 0, "by time");
        }
        return got;
    }

    /**
     * Runs members, which read until they are stopped, commit and leave. None leaves before all have committed: the
     * others would lose their partitions, and with them what they have not committed.
     */
    private final class Members {
        private final List<String> values = Collections.synchronizedList(new ArrayList<>());
        private final List<Integer> assigned;
        private final AtomicBoolean stop = new AtomicBoolean();
        private final CountDownLatch owing;
        private final List<Throwable> failures = Collections.synchronizedList(new ArrayList<>());

        Members(int members) {
            assigned = Collections.synchronizedList(new ArrayList<>(Collections.nCopies(members, 0)));
            owing = new CountDownLatch(members);
        }

        private void run(int number) {
            try (KafkaConsumer<String, String> consumer = consumer(Map.of("group.id", group))) {
                consumer.subscribe(List.of(sharedTopic));
                while (!stop.get()) {
                    consumer.poll(Duration.ofMillis(100)).forEach(each -> values.add(each.value()));
                    assigned.set(number, consumer.assignment().size());
                }
                consumer.commitSync();
                owing.countDown();
                check(owing.await(PATIENCE.toSeconds(), TimeUnit.SECONDS), "a member has not committed");
            } catch (Throwable failure) {
                failures.add(failure);
            }
        }

        /** Sends once each member has its partitions, and returns what they read. */
        List<String> consume(Runnable onceAssigned) throws InterruptedException {
            int size = assigned.size();
            List<Thread> threads = new ArrayList<>();
            for (int n = 0; n < size; n++) {
                int number = n;
                threads.add(new Thread(() -> run(number)));
                threads.get(n).start();
            }
            try {
                List<Integer> wanted = Collections.nCopies(size, SHARED_PARTITIONS / size);
                until("every member has its partitions", () -> assigned.equals(wanted));
                onceAssigned.run();
                until("the members read all", () -> values.size() >= count || !failures.isEmpty());
                Thread.sleep(100); // for what must not come
            } finally {
                stop.set(true);
                for (Thread thread : threads) {
                    thread.join();
                }
            }
            check(failures.isEmpty(), "members failed: " + failures);
            return values;
        }
    }

    private List<String> produce(String round) {
        List<String> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            for (int n = 0; n < count; n++) {
                sent.add(round + " " + n);
                producer.send(new ProducerRecord<>(sharedTopic, n % SHARED_PARTITIONS, null, sent.get(n)));
            }
        }
        return sent;
    }

    private void shareInGroup() throws Exception {
        admin.createTopics(List.of(new NewTopic(sharedTopic, SHARED_PARTITIONS, (short) 1))).all().get();
        List<String> first = new ArrayList<>();
        List<String> got = new Members(members).consume(() -> first.addAll(produce("first")));
        sameValues(first, got);
        List<String> second = produce("second");
        sameValues(second, new Members(1).consume(() -> {}));
    }

    private boolean groupListed() throws Exception {
        return admin.listConsumerGroups().all().get().stream()
                .map(ConsumerGroupListing::groupId)
                .anyMatch(group::equals);
    }

    private void deleteAll() throws Exception {
        check(groupListed(), "the group is not listed");
        ConsumerGroupState state = admin.describeConsumerGroups(List.of(group)).all().get().get(group).state();
        check(state == ConsumerGroupState.EMPTY, "the group is " + state);
        admin.deleteConsumerGroups(List.of(group)).all().get();
        check(!groupListed(), "the group is still listed");
        admin.deleteTopics(List.of(sharedTopic)).all().get();
        check(!topics().contains(sharedTopic), "the topic is still listed");
    }
}
