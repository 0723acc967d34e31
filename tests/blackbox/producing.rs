//! Produce: codecs, acks, versions, order.

use thalweg_protocol::messages::{ApiVersionsRequest, ProduceRequest};
use thalweg_protocol::records::{BatchBuilder, BatchOptions, Codec, batches};
use thalweg_protocol::{ErrorCode, Message};
use thalweg_types::TimestampMs;

use crate::batch::{CODECS, bytes_of, compressed, now_ms, plain, read_all, values};
use crate::broker::{Broker, Options};
use crate::wire::{Topic, error, newest, only, produce_request};

#[test]
fn every_codec_and_acks_comes_back_as_it_went() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("codecs", 1, &[]);
    let mut sent = Vec::new();
    for codec in CODECS {
        for acks in [1_i16, -1] {
            let records: Vec<String> = (0..50)
                .map(|number| format!("{codec:?} {acks} {number} {}", "x".repeat(100)))
                .collect();
            let answer = client.produce(&topic, 0, acks, compressed(codec, &records));
            assert_eq!(
                error(answer.error_code),
                ErrorCode::None,
                "{codec:?} acks {acks}"
            );
            assert_eq!(
                answer.base_offset,
                i64::try_from(sent.len()).expect("small")
            );
            assert_eq!(answer.log_start_offset, 0);
            sent.extend(records.into_iter().map(|text| (text.into_bytes(), codec)));
        }
    }
    let got = read_all(&mut client, &topic, 0, 0);
    let got: Vec<_> = got
        .into_iter()
        .map(|record| (record.value, record.codec))
        .collect();
    assert_eq!(got, sent);
}

/// What was sent is what is stored, but for offset and epoch, which lie outside the checksum.
#[test]
fn bi_16_compressed_batches_are_stored_untouched() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("untouched", 1, &[]);
    for codec in CODECS {
        let batch = compressed(codec, &["a".repeat(1_000), "b".repeat(1_000)]);
        let offset = client.append(&topic, 0, batch.clone());
        let answer = client.fetch(&topic, 0, offset);
        let stored = batches(bytes_of(&answer))
            .next()
            .expect("a batch")
            .expect("a whole one");
        assert_eq!(stored.header.base_offset.0, offset);
        assert_eq!(stored.bytes[8..12], batch[8..12], "length");
        assert_eq!(
            stored.bytes[16..],
            batch[16..],
            "magic, checksum and all it covers"
        );
    }
}

#[test]
fn produce_answers_in_every_version() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("versions", 1, &[]);
    for (nth, version) in ProduceRequest::VERSIONS.enumerate() {
        let request = produce_request(&topic, 0, 1, plain(&[format!("version {version}")]));
        let answer = only(client.call(&request, version));
        assert_eq!(
            error(answer.error_code),
            ErrorCode::None,
            "version {version}"
        );
        assert_eq!(answer.base_offset, i64::try_from(nth).expect("small"));
    }
    let unknown = Topic {
        name: "missing".to_owned(),
        ..topic
    };
    let request = produce_request(&unknown, 0, 1, plain(&["lost"]));
    let answer = only(client.call(&request, 12));
    assert_eq!(error(answer.error_code), ErrorCode::UnknownTopicOrPartition);
}

#[test]
fn rp_6_acks_0_is_not_answered() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("no-acks", 1, &[]);
    for number in 0..10 {
        let request = produce_request(&topic, 0, 0, plain(&[format!("{number}")]));
        client.send(&request, newest::<ProduceRequest>());
    }
    // The next answer is that of the next request, and the records are there in order.
    assert_eq!(client.append(&topic, 0, plain(&["last"])), 10);
    let got = values(&read_all(&mut client, &topic, 0, 0));
    assert_eq!(
        got[..10],
        (0..10)
            .map(|number| number.to_string().into_bytes())
            .collect::<Vec<_>>()
    );
}

#[test]
fn rp_6_an_error_under_acks_0_closes_the_connection() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let missing = Topic {
        name: "missing".to_owned(),
        id: thalweg_types::Uuid::ZERO,
    };
    client.send(&produce_request(&missing, 0, 0, plain(&["lost"])), 9);
    client.assert_closed("acks=0 to a topic that is not there");
}

#[test]
fn rp_6_other_acks_are_refused() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("acks", 1, &[]);
    for acks in [2_i16, -2, i16::MAX] {
        let answer = client.produce(&topic, 0, acks, plain(&["x"]));
        assert_eq!(
            error(answer.error_code),
            ErrorCode::InvalidRequiredAcks,
            "acks {acks}"
        );
    }
    assert_eq!(client.end_offset(&topic, 0), 0);
}

/// RP-2 as far as one replica shows it: two are asked for, so nothing is appended.
#[test]
fn rp_2_too_few_replicas_refuse_acks_all() {
    let broker = Broker::start();
    let mut client = broker.connect();
    // A required minimum above the replication factor acts as the factor (RP-5).
    let topic = client.create_topic("minimum", 1, &[("min.insync.replicas", "2")]);
    assert_eq!(
        error(client.produce(&topic, 0, -1, plain(&["x"])).error_code),
        ErrorCode::None
    );
}

/// BI-5: pipelined requests, of different kinds and to partitions of different shards, are answered
/// in their order, and appended in it.
#[test]
fn bi_5_pipelined_requests_keep_their_order() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("pipelined", 4, &[]);
    let version = newest::<ProduceRequest>();
    let mut sent = Vec::new();
    for number in 0..200_i32 {
        let batch = plain(&[format!("{number}")]);
        sent.push((
            client.send(&produce_request(&topic, number % 4, -1, batch), version),
            true,
        ));
        if number % 3 == 0 {
            sent.push((client.send(&ApiVersionsRequest::default(), 2), false));
        }
    }
    for (correlation, is_produce) in sent {
        let got = if is_produce {
            let (got, response) = client.receive::<ProduceRequest>(version);
            assert_eq!(only(response).error_code, 0);
            got
        } else {
            client.receive::<ApiVersionsRequest>(2).0
        };
        assert_eq!(got, correlation);
    }
    for partition in 0..4 {
        let got = values(&read_all(&mut client, &topic, partition, 0));
        let wanted = (0..200).filter(|number| number % 4 == partition);
        assert_eq!(
            got,
            wanted
                .map(|number| number.to_string().into_bytes())
                .collect::<Vec<_>>()
        );
    }
}

#[test]
fn append_time_is_the_brokers() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic(
        "append-time",
        1,
        &[("message.timestamp.type", "LogAppendTime")],
    );
    let before = crate::batch::now_ms();
    for codec in CODECS {
        let answer = client.produce(&topic, 0, 1, compressed(codec, &["x", "y"]));
        assert_eq!(error(answer.error_code), ErrorCode::None);
        assert!(answer.log_append_time_ms >= before);
        let fetched = client.fetch(&topic, 0, answer.base_offset);
        let batch = batches(bytes_of(&fetched))
            .next()
            .expect("a batch")
            .expect("a whole one");
        assert!(batch.crc_matches(), "the timestamp is under the checksum");
        assert_eq!(batch.header.max_timestamp.0, answer.log_append_time_ms);
    }
}

#[test]
fn segments_roll_by_size() {
    let broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("rolls", 1, &[("segment.bytes", "1048576")]);
    let record = "x".repeat(100_000);
    for _ in 0..40 {
        client.append(&topic, 0, plain(&[&record]));
    }
    let names = std::fs::read_dir(broker.partition("rolls", 0)).expect("the partition's folder");
    let logs = names.filter(|entry| {
        entry
            .as_ref()
            .expect("an entry")
            .file_name()
            .to_string_lossy()
            .ends_with(".log")
    });
    assert!(logs.count() >= 4, "four megabytes in segments of one");
    assert_eq!(read_all(&mut client, &topic, 0, 0).len(), 40);
    assert_eq!(read_all(&mut client, &topic, 0, 17).len(), 23);
}

#[test]
fn the_records_that_a_topic_does_not_take_are_named() {
    const NAMED_FROM: i16 = 8;
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("keyed", 1, &[("cleanup.policy", "compact")]);
    let batch = |keys: &[Option<&str>]| {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        for key in keys {
            let key = key.map(str::as_bytes);
            builder
                .push(TimestampMs(now_ms()), key, Some(b"value"), &[])
                .expect("a small record");
        }
        builder.build(Codec::None).expect("a batch").to_vec()
    };
    let mixed = batch(&[None, Some("a"), None, Some("b")]);
    for version in ProduceRequest::VERSIONS {
        let request = produce_request(&topic, 0, -1, mixed.clone());
        let row = only(client.call(&request, version));
        assert_eq!(error(row.error_code), ErrorCode::InvalidRecord);
        let named: Vec<_> = row
            .record_errors
            .iter()
            .map(|one| one.batch_index)
            .collect();
        match version >= NAMED_FROM {
            true => assert_eq!(named, [0, 2], "version {version}"),
            false => assert!(named.is_empty()),
        }
        assert!(
            row.record_errors
                .iter()
                .all(|one| one.batch_index_error_message.is_some())
        );
    }
    // However many batches there are, the answer stays small.
    let mut request = produce_request(&topic, 0, -1, batch(&[None; 100]));
    let partitions = &mut request.topic_data[0].partition_data;
    *partitions = vec![partitions[0].clone(); 20].into();
    let answer = client.call(&request, newest::<ProduceRequest>());
    let rows = answer.responses[0].partition_responses.iter();
    let named: Vec<_> = rows.map(|row| row.record_errors.len()).collect();
    assert_eq!(named, [vec![100; 10], vec![0; 10]].concat());
    client.append(&topic, 0, batch(&[Some("a"), Some("b")]));
}
