//! Writes and reads with rskafka. The steps are those of ../../../README.md, less idempotent producers,
//! settings and groups, which the library does not have.

use chrono::DateTime;
use foreign_rust::{Arguments, Record, records, same};
use rskafka::client::error::{Error, ProtocolError};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};

const TIMEOUT_MS: i32 = 10_000;

#[tokio::main]
async fn main() {
    let arguments = Arguments::parse();
    let topic = format!("{}-codecs", arguments.prefix);
    let client = ClientBuilder::new(vec![arguments.bootstrap.clone()])
        .build()
        .await
        .unwrap();
    make_topic(&client, &topic).await;
    let partition = client
        .partition_client(topic.clone(), 1, UnknownTopicHandling::Error)
        .await
        .unwrap();
    let sent = produce_each_codec(&partition, arguments.count).await;
    same(&sent, &read(&partition, sent.len()).await);

    let doomed = format!("{}-doomed", arguments.prefix);
    let controller = client.controller_client().unwrap();
    controller
        .create_topic(&doomed, 1, 1, TIMEOUT_MS)
        .await
        .unwrap();
    controller.delete_topic(&doomed, TIMEOUT_MS).await.unwrap();
    assert!(!is_listed(&client, &doomed).await);
    println!("ok");
}

async fn is_listed(client: &Client, topic: &str) -> bool {
    client
        .list_topics()
        .await
        .unwrap()
        .iter()
        .any(|each| each.name == topic)
}

async fn make_topic(client: &Client, topic: &str) {
    let controller = client.controller_client().unwrap();
    controller
        .create_topic(topic, 2, 1, TIMEOUT_MS)
        .await
        .unwrap();
    let again = controller.create_topic(topic, 2, 1, TIMEOUT_MS).await;
    assert!(matches!(
        again,
        Err(Error::ServerError {
            protocol_error: ProtocolError::TopicAlreadyExists,
            ..
        })
    ));
    assert!(is_listed(client, topic).await);
}

async fn produce_each_codec(partition: &PartitionClient, count: usize) -> Vec<Record> {
    let codecs = [
        ("none", Compression::NoCompression),
        ("gzip", Compression::Gzip),
        ("snappy", Compression::Snappy),
        ("lz4", Compression::Lz4),
        ("zstd", Compression::Zstd),
    ];
    let mut all = Vec::new();
    for (codec, compression) in codecs {
        let batch = records(&format!("{codec}+plain"), count);
        let outgoing = batch.iter().map(|record| rskafka::record::Record {
            key: record.key.clone(),
            value: record.value.clone(),
            headers: record.headers.clone(),
            timestamp: DateTime::from_timestamp_millis(42).unwrap(),
        });
        let produced = partition
            .produce(outgoing.collect(), compression)
            .await
            .unwrap();
        let wanted: Vec<i64> = (all.len()..all.len() + count).map(|n| n as i64).collect();
        assert_eq!(produced, wanted);
        all.extend(batch);
    }
    all
}

async fn read(partition: &PartitionClient, count: usize) -> Vec<Record> {
    assert_eq!(
        partition.get_offset(OffsetAt::Latest).await.unwrap(),
        count as i64
    );
    let mut got = Vec::new();
    while got.len() < count {
        let (batch, _) = partition
            .fetch_records(got.len() as i64, 1..1_000_000, 5_000)
            .await
            .unwrap();
        got.extend(batch.into_iter().map(|read| Record {
            key: read.record.key,
            value: read.record.value,
            headers: read.record.headers,
        }));
    }
    got
}
