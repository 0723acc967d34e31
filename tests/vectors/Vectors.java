import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;

/**
 * Turns seeds into vectors: reads lines "name version hex" and writes lines "name version hex json",
 * where both the bytes and the JSON come from Kafka's own generated classes.
 */
public class Vectors {
    private static Class<?> find(String name, String suffix) throws ClassNotFoundException {
        String[] candidates = {
            "org.apache.kafka.common.message." + name + "Data" + suffix,
            "org.apache.kafka.common.message." + name + suffix,
            "org.apache.kafka.common.metadata." + name + suffix,
        };
        for (String candidate : candidates) {
            try {
                return Class.forName(candidate);
            } catch (ClassNotFoundException e) {
                // The next one.
            }
        }
        throw new ClassNotFoundException(name + suffix);
    }

    private static JsonNode json(String name, ApiMessage message, short version) throws Exception {
        for (Method method : find(name, "JsonConverter").getMethods()) {
            if (method.getName().equals("write") && method.getParameterCount() == 3) {
                // Without the record bytes, only their size.
                return (JsonNode) method.invoke(null, message, version, false);
            }
        }
        throw new NoSuchMethodException(name);
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder out = new StringBuilder();
        int differing = 0;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            short version = Short.parseShort(words[1]);
            byte[] seed = HexFormat.of().parseHex(words.length > 2 ? words[2] : "");
            ApiMessage message =
                (ApiMessage) find(words[0], "").getDeclaredConstructor().newInstance();
            ByteBuffer buffer = ByteBuffer.wrap(seed);
            message.read(new ByteBufferAccessor(buffer), version);
            if (buffer.hasRemaining()) {
                throw new IllegalStateException("bytes left: " + line);
            }
            ByteBuffer written =
                MessageUtil.toByteBufferAccessor(message, version).buffer();
            byte[] bytes = new byte[written.remaining()];
            written.get(bytes);
            String hex = HexFormat.of().formatHex(bytes);
            if (!java.util.Arrays.equals(bytes, seed)) {
                differing++;
                System.err.println("Kafka writes other bytes than it read: " + line + " -> " + hex);
            }
            out.append(words[0]).append(' ').append(version).append(' ')
                .append(hex.isEmpty() ? "-" : hex).append(' ')
                .append(json(words[0], message, version)).append('\n');
        }
        System.out.write(out.toString().getBytes(StandardCharsets.UTF_8));
        System.out.flush();
        System.err.println("seeds that Kafka wrote differently: " + differing);
    }
}
