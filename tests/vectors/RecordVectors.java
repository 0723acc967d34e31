import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Objects;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;

/**
 * Makes the record batches of src/protocol/records/testdata with Kafka's own client code, and reads
 * batches that Thalweg made.
 *
 * <pre>
 * CP='/path/to/kafka/libs/*'
 * java -cp "$CP" tests/vectors/RecordVectors.java write src/protocol/records/testdata
 * java -cp "$CP" tests/vectors/RecordVectors.java read DIR     # DIR/{small,large}-CODEC.hex
 * </pre>
 *
 * The contents ("small" and "large") are computed here and, independently, in
 * src/protocol/records/tests/vectors.rs.
 */
public final class RecordVectors {
    private static final int LINE = 96;

    public static void main(String[] args) throws IOException {
        Path dir = Path.of(args[1]);
        if (args[0].equals("write")) {
            write(dir);
        } else {
            read(dir);
        }
    }

    private static void write(Path dir) throws IOException {
        for (CompressionType type : CompressionType.values()) {
            Compression compression = Compression.of(type).build();
            save(dir, "small-" + type.name, MemoryRecords.withRecords(7L, compression, 3, small()));
            if (type != CompressionType.NONE) { // 240 KB without compression; nothing new in it
                save(dir, "large-" + type.name, MemoryRecords.withRecords(compression, large()));
            }
        }
        MemoryRecordsBuilder stamped = MemoryRecords.builder(ByteBuffer.allocate(1024),
            RecordBatch.MAGIC_VALUE_V2, Compression.of(CompressionType.LZ4).build(), TimestampType.LOG_APPEND_TIME, 7L, 123456789L);
        for (SimpleRecord record : small()) {
            stamped.append(record);
        }
        save(dir, "small-lz4-stamped", stamped.build());
        save(dir, "small-none-transactional", MemoryRecords.withRecords(RecordBatch.MAGIC_VALUE_V2, 7L,
            Compression.NONE, TimestampType.CREATE_TIME, 4000L, (short) 2, 90, 3, true, small()));
        save(dir, "commit-marker", MemoryRecords.withEndTransactionMarker(11L, 5000L, 3, 4000L, (short) 2,
            new EndTransactionMarker(ControlRecordType.COMMIT, 9)));
        save(dir, "leader-change", MemoryRecords.withLeaderChangeMessage(12L, 5001L, 4,
            ByteBuffer.allocate(256), new LeaderChangeMessage().setLeaderId(1)));
    }

    private static SimpleRecord[] small() {
        return new SimpleRecord[] {
            new SimpleRecord(1000, bytes("k0"), bytes("v0"), new Header[] {
                new RecordHeader("h", bytes("x")), new RecordHeader("n", (byte[]) null), new RecordHeader("h", new byte[0])}),
            new SimpleRecord(990, null, new byte[0], new Header[0]),
            new SimpleRecord(70000, new byte[0], (byte[]) null, new Header[] {new RecordHeader("\u00fc", bytes("\u20ac"))}),
            new SimpleRecord(70000, bytes("k3"), bytes("v3".repeat(100)), new Header[0]),
        };
    }

    private static SimpleRecord[] large() {
        List<SimpleRecord> records = new ArrayList<>();
        for (int i = 0; i < 60; i++) {
            byte[] value = new byte[4000];
            for (int j = 0; j < value.length; j++) {
                value[j] = (byte) ((i * 31 + j / 7) % 251);
            }
            records.add(new SimpleRecord(1_700_000_000_000L + i, bytes("key-" + i), value));
        }
        return records.toArray(new SimpleRecord[0]);
    }

    private static void save(Path dir, String name, MemoryRecords records) throws IOException {
        byte[] bytes = new byte[records.sizeInBytes()];
        records.buffer().get(bytes);
        String hex = HexFormat.of().formatHex(bytes);
        StringBuilder text = new StringBuilder();
        for (int at = 0; at < hex.length(); at += LINE) {
            text.append(hex, at, Math.min(hex.length(), at + LINE)).append('\n');
        }
        Files.writeString(dir.resolve(name + ".hex"), text);
    }

    private static void read(Path dir) throws IOException {
        for (CompressionType type : CompressionType.values()) {
            check(dir, "small-" + type.name, type, small());
            check(dir, "large-" + type.name, type, large());
        }
    }

    private static void check(Path dir, String name, CompressionType type, SimpleRecord[] expected) throws IOException {
        String hex = Files.readString(dir.resolve(name + ".hex")).replace("\n", "");
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(hex)));
        int at = 0;
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            require(batch.compressionType() == type, name + ": codec");
            for (Record record : batch) {
                require(new SimpleRecord(record).equals(expected[at]), name + ": record " + at);
                require(record.offset() == batch.baseOffset() + at, name + ": offset " + at);
                at++;
            }
            require(batch.lastOffset() == batch.baseOffset() + at - 1, name + ": last offset");
        }
        require(at == expected.length, name + ": " + at + " records");
        System.out.println(name + ": " + at + " records read");
    }

    private static void require(boolean condition, String what) {
        if (!condition) {
            throw new IllegalStateException(what);
        }
    }

    private static byte[] bytes(String text) {
        return Objects.requireNonNull(text).getBytes(StandardCharsets.UTF_8);
    }
}
