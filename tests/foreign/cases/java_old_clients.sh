# uses: old_java
# needs: JoinGroup
# slow
# Kafka's Java clients of earlier years, which most applications still have, do all steps of a client.
. "$FOREIGN/lib.sh"

mapfile -t folders <<<"$OLD_JAVA_CLIENTS"
# Built against the oldest, as an application is that gets newer jars later.
javac -cp "${folders[0]}/*" -d classes "$FOREIGN/java/WithKafkaClients.java"
for jars in "${folders[@]}"; do
  client_steps "$(basename "$jars")" java "${JAVA_FLAGS[@]}" -cp "classes:$jars/*" WithKafkaClients
done
