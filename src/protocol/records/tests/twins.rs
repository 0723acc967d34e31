//! The strict walk against a dumb twin, and every reader against random damage.

use proptest::prelude::{
    ProptestConfig, Strategy, any, prop, prop_assert, prop_assert_eq, proptest,
};
use thalweg_types::TimestampMs;

use super::{NOW, check, rules, three, with_payload, with_records};
use crate::records::header::AT_MAGIC;
use crate::records::varint::{put_i32, put_i64};
use crate::records::{
    BATCH_HEADER_BYTES, BatchBuilder, BatchOptions, Codec, Level, Refusal, batches, compress,
    decompress, records_of, validate_produce,
};

const CAP: usize = 1 << 22;

/// Reads records in the plainest way: `None` when anything is wrong, else the timestamp deltas.
fn twin(payload: &[u8], record_count: i32) -> Option<Vec<i64>> {
    let mut at = 0usize;
    let mut deltas = Vec::new();
    for index in 0..record_count {
        let end = {
            let length = int(payload, &mut at, payload.len())?;
            at.checked_add(usize::try_from(length).ok()?)?
        };
        if end > payload.len() || end == at {
            return None;
        }
        at += 1; // attributes
        let delta = long(payload, &mut at, end)?;
        if int(payload, &mut at, end)? != i64::from(index) {
            return None;
        }
        field(payload, &mut at, end, -1)?;
        field(payload, &mut at, end, -1)?;
        let headers = int(payload, &mut at, end)?;
        if headers < 0 {
            return None;
        }
        for _ in 0..headers {
            field(payload, &mut at, end, 0)?;
            field(payload, &mut at, end, -1)?;
        }
        if at != end {
            return None;
        }
        deltas.push(delta);
    }
    (at == payload.len()).then_some(deltas)
}

fn field(payload: &[u8], at: &mut usize, end: usize, least: i64) -> Option<()> {
    let length = int(payload, at, end)?;
    if length < least || length > (end - *at) as i64 {
        return None;
    }
    *at += length.max(0) as usize;
    Some(())
}

fn int(payload: &[u8], at: &mut usize, end: usize) -> Option<i64> {
    let start = *at;
    let value = i32::try_from(number(payload, at, end)?).ok()?;
    let mut again = Vec::new();
    put_i32(&mut again, value);
    (again == payload[start..*at]).then_some(i64::from(value))
}

fn long(payload: &[u8], at: &mut usize, end: usize) -> Option<i64> {
    let start = *at;
    let value = i64::try_from(number(payload, at, end)?).ok()?;
    let mut again = Vec::new();
    put_i64(&mut again, value);
    (again == payload[start..*at]).then_some(value)
}

fn number(payload: &[u8], at: &mut usize, end: usize) -> Option<i128> {
    let mut raw = 0u128;
    for shift in 0..18 {
        if *at >= end {
            return None;
        }
        let byte = payload[*at];
        *at += 1;
        raw |= u128::from(byte & 0x7f) << (7 * shift);
        if byte < 0x80 {
            let half = (raw >> 1) as i128;
            return Some(if raw & 1 == 0 { half } else { -half - 1 });
        }
    }
    None
}

fn codecs() -> impl Strategy<Value = Codec> {
    prop::sample::select(Codec::ALL.to_vec())
}

type Sample = (
    i64,
    Option<Vec<u8>>,
    Option<Vec<u8>>,
    Vec<(String, Option<Vec<u8>>)>,
);

fn samples() -> impl Strategy<Value = Vec<Sample>> {
    let bytes = || prop::option::of(prop::collection::vec(any::<u8>(), 0..200));
    let header = (
        "[a-z]{0,5}",
        prop::option::of(prop::collection::vec(any::<u8>(), 0..9)),
    );
    let headers = prop::collection::vec(header, 0..4);
    prop::collection::vec((0..NOW.0 + 1000, bytes(), bytes(), headers), 1..30)
}

fn build(samples: &[Sample], codec: Codec) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for (timestamp, key, value, headers) in samples {
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_deref()))
            .collect();
        builder
            .push(
                TimestampMs(*timestamp),
                key.as_deref(),
                value.as_deref(),
                &headers,
            )
            .expect("small");
    }
    builder.build(codec).expect("at least one record").to_vec()
}

/// Reads everything in every way; the answers do not matter, only that there are some.
fn read_all(bytes: &[u8]) {
    for batch in batches(bytes).flatten() {
        let _ = batch.crc_matches();
        if let Ok(set) = batch.records(CAP) {
            for record in set.iter().flatten() {
                let _ = record.headers.iter().count();
            }
        }
    }
    let _ = check(bytes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn batches_round_trip(samples in samples(), codec in codecs()) {
        let batch = build(&samples, codec);
        let summary = check(&batch).expect("valid");
        let set = records_of(&batch, CAP).expect("readable");
        let read: Vec<Sample> = set.iter().map(|record| {
            let record = record.expect("readable");
            let headers = record.headers.iter().map(|header| {
                let name = String::from_utf8(header.key.to_vec()).expect("ASCII");
                (name, header.value.map(<[u8]>::to_vec))
            });
            (
                record.timestamp.0,
                record.key.map(<[u8]>::to_vec),
                record.value.map(<[u8]>::to_vec),
                headers.collect(),
            )
        }).collect();
        prop_assert_eq!(&read, &samples);
        let max = samples.iter().map(|sample| sample.0).max().expect("not empty");
        let at = samples.iter().position(|sample| sample.0 == max).expect("there");
        prop_assert_eq!(summary.max_timestamp, TimestampMs(max));
        prop_assert_eq!(summary.offset_delta_of_max_timestamp, at as i32);
        prop_assert_eq!(summary.uncompressed_bytes, set.payload().len());
    }

    #[test]
    fn codecs_round_trip(payload in prop::collection::vec(0u8..8, 0..200_000), codec in codecs()) {
        let mut packed = Vec::new();
        compress(codec, Level::Default, &payload, &mut packed).expect("compressible");
        if codec != Codec::Snappy || !payload.is_empty() {
            prop_assert_eq!(decompress(codec, &packed, CAP), Ok(payload));
        }
    }

    #[test]
    fn damaged_records_are_judged_as_the_twin_does(
        samples in samples(),
        codec in codecs(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let plain = build(&samples, Codec::None);
        let mut records = plain[BATCH_HEADER_BYTES..].to_vec();
        for (at, byte) in &damage {
            let at = at.index(records.len());
            records[at] = *byte;
        }
        if let Some(cut) = cut {
            records.truncate(cut.index(records.len()));
        }
        let count = samples.len() as i32;
        let mut open = rules();
        open.timestamps = crate::records::TimestampRule::LogAppendTime { now: NOW };
        let judged = validate_produce(&with_records(codec, count, &records), &open);
        let expected = twin(&records, count)
            .filter(|deltas| deltas.iter().all(|delta| NOW.0.checked_add(*delta).is_some()));
        prop_assert_eq!(judged.is_ok(), expected.is_some(), "{:?}", judged);
        // What the strict walk lets through, the lenient reader reads to its end.
        if judged.is_ok() {
            let batch = with_records(codec, count, &records);
            let set = records_of(&batch, CAP).expect("readable");
            prop_assert_eq!(set.iter().filter(|record| record.is_ok()).count() as i32, count);
            prop_assert!(set.iter().all(|record| record.is_ok()));
        }
    }

    #[test]
    fn damaged_streams_are_judged_as_a_full_decompression_does(
        samples in samples(),
        codec in codecs(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let good = build(&samples, codec);
        let mut payload = good[BATCH_HEADER_BYTES..].to_vec();
        for (at, byte) in &damage {
            let at = at.index(payload.len());
            payload[at] = *byte;
        }
        let count = samples.len() as i32;
        let batch = with_payload(codec, count, &payload);
        let mut open = rules();
        open.timestamps = crate::records::TimestampRule::LogAppendTime { now: NOW };
        let judged = validate_produce(&batch, &open);
        let expected = decompress(codec, &payload, open.decompressed_bytes_max)
            .ok()
            .and_then(|plain| twin(&plain, count))
            .filter(|deltas| deltas.iter().all(|delta| NOW.0.checked_add(*delta).is_some()));
        prop_assert_eq!(judged.is_ok(), expected.is_some(), "{:?}", judged);
        read_all(&batch);
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        read_all(&bytes);
        for codec in Codec::ALL {
            let _ = decompress(codec, &bytes, CAP);
            read_all(&with_payload(codec, 2, &bytes));
        }
    }
}

#[test]
fn every_flipped_byte_is_refused_and_every_cut_survived() {
    for codec in Codec::ALL {
        let good = three(codec);
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                read_all(&bad);
                // The leader epoch is the one field that neither the CRC nor a rule covers.
                if (12..AT_MAGIC).contains(&at) {
                    assert!(check(&bad).is_ok());
                } else {
                    assert!(check(&bad).is_err(), "{codec:?} byte {at} bit {bit}");
                }
                if at > AT_MAGIC {
                    assert!(matches!(check(&bad), Err(Refusal::Crc { .. })));
                }
            }
            read_all(&good[..at]);
            read_all(&good[at..]);
        }
    }
}
