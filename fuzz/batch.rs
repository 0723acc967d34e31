//! Record batches (BI-11 to BI-16, BI-19).

use bytes::BytesMut;
use thalweg_protocol::records::{
    BATCH_HEADER_BYTES, ProduceRules, TimestampRule, assign, batches as batches_of, crc_matches,
    records_of, validate_produce,
};
use thalweg_types::{LeaderEpoch, Offset, TimestampMs};

const NOW: TimestampMs = TimestampMs(1_700_000_000_000);
/// Enough for every honest seed; bombs stop here.
const DECOMPRESSED_BYTES_MAX: usize = 1 << 20;
const CRC_AT: usize = 17;
const CRC_FROM: usize = 21;

const REPAIR: u8 = 1;
const LOG_APPEND_TIME: u8 = 2;
const KEYS_REQUIRED: u8 = 4;
const OLD_PRODUCE: u8 = 8;

/// Bits of the first byte: 1 repairs length and checksum, so that damage behind them is reached; 2
/// LogAppendTime; 4 keys are required; 8 a produce version without zstd. The rest is the batch.
pub fn batches(data: &[u8]) {
    let Some((flags, bytes)) = data.split_first() else {
        return;
    };
    let mut batch = BytesMut::from(bytes);
    if flags & REPAIR != 0 {
        repair(&mut batch);
    }
    read(&batch);
    let rules = rules(*flags);
    let Ok(summary) = validate_produce(&batch, &rules) else {
        return;
    };
    assert_eq!(summary.bytes, batch.len());
    assert_eq!(summary.last_offset_delta, summary.record_count - 1);
    assert!(!summary.is_control, "control batches are the broker's own");
    summary.settle(&mut batch);
    assign(&mut batch, Offset(1_000), LeaderEpoch(7));
    assert!(
        crc_matches(&batch),
        "offset and epoch lie outside the checksum"
    );
    let set = records_of(&batch, DECOMPRESSED_BYTES_MAX).expect("a validated batch opens");
    let mut count = 0;
    for (at, record) in set.iter().enumerate() {
        let record = record.expect("a validated record reads");
        assert_eq!(record.offset, Offset(1_000 + at as i64));
        count += 1;
    }
    assert_eq!(count, summary.record_count);
}

/// Reading without validation, as of a fetched or damaged log.
fn read(bytes: &[u8]) {
    for batch in batches_of(bytes) {
        let Ok(batch) = batch else { break };
        let _ = batch.crc_matches();
        let Ok(set) = batch.records(DECOMPRESSED_BYTES_MAX) else {
            continue;
        };
        for record in set.iter() {
            let Ok(record) = record else { break };
            record.headers.iter().for_each(drop);
        }
    }
}

fn repair(batch: &mut BytesMut) {
    if batch.len() < BATCH_HEADER_BYTES {
        return;
    }
    let length = (batch.len() - 12) as i32;
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&batch[CRC_FROM..]);
    batch[CRC_AT..CRC_FROM].copy_from_slice(&crc.to_be_bytes());
}

fn rules(flags: u8) -> ProduceRules {
    let defaults = ProduceRules::defaults(NOW);
    let timestamps = match flags & LOG_APPEND_TIME {
        0 => defaults.timestamps,
        _ => TimestampRule::LogAppendTime { now: NOW },
    };
    ProduceRules {
        decompressed_bytes_max: DECOMPRESSED_BYTES_MAX,
        timestamps,
        keys_required: flags & KEYS_REQUIRED != 0,
        produce_version: if flags & OLD_PRODUCE != 0 {
            6
        } else {
            defaults.produce_version
        },
        ..defaults
    }
}
