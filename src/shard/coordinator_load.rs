//! Reading a partition of the offsets topic from its start, so that its coordinator knows its groups.

use std::collections::HashMap;

use bytes::BytesMut;
use thalweg_group::Record;
use thalweg_protocol::records::control::ControlRecordType;
use thalweg_protocol::records::{Batch, batches};
use thalweg_reactor::{fs, task};
use thalweg_replica::Isolation;
use thalweg_types::limits::{COORDINATOR_LOAD_BYTES, DECOMPRESSED_BATCH_BYTES_MAX};
use thalweg_types::{LeaderEpoch, Offset};

use crate::partition::Partition;
use crate::peer::{FetchAsk, OffsetAsk};

/// Calls `replay` for every record up to the high watermark, oldest first; those of a transaction at
/// its commit. Record types that are not the coordinator's are passed over.
///
/// # Errors
/// Why the partition can not be read.
pub(crate) async fn replay(
    partition: &Partition,
    mut replay: impl FnMut(Record),
) -> Result<(), String> {
    let mut at = log_start(partition).await?;
    let mut open: HashMap<i64, Vec<Record>> = HashMap::new();
    while let Some((bytes, next)) = read(partition, at).await? {
        for batch in batches(&bytes) {
            let batch = batch.map_err(|error| format!("behind offset {at}: {error}"))?;
            replay_batch(&batch, &mut open, &mut replay)
                .map_err(|error| format!("offset {}: {error}", batch.header.base_offset))?;
        }
        at = next;
        task::yield_now().await;
    }
    Ok(())
}

async fn log_start(partition: &Partition) -> Result<Offset, String> {
    const EARLIEST: i64 = -2;
    let ask = OffsetAsk {
        slot: 0,
        id: partition.id(),
        timestamp: EARLIEST,
        current_leader_epoch: LeaderEpoch::NONE,
        isolation: Isolation::ReadUncommitted,
    };
    match partition.list_offset(&ask).await.result {
        Ok((offset, _, _)) => Ok(offset),
        Err(error) => Err(error.name().to_owned()),
    }
}

/// Whole batches from `at` on, and where to go on; `None` at the high watermark.
async fn read(partition: &Partition, at: Offset) -> Result<Option<(BytesMut, Offset)>, String> {
    let ask = FetchAsk {
        slot: 0,
        id: partition.id(),
        offset: at,
        current_leader_epoch: LeaderEpoch::NONE,
        last_fetched_epoch: LeaderEpoch::NONE,
        bytes_max: COORDINATOR_LOAD_BYTES,
        isolation: Isolation::ReadUncommitted,
    };
    let found = partition.fetch(&ask, None).await;
    if found.error.code() != 0 {
        return Err(found.error.name().to_owned());
    }
    let Some(plan) = found.plan else {
        return Ok(None);
    };
    let bytes = fs::read_at(&plan.file, plan.position, plan.len as usize)
        .await
        .map_err(|error| error.to_string())?;
    Ok(Some((bytes, plan.next_offset)))
}

fn replay_batch(
    batch: &Batch<'_>,
    open: &mut HashMap<i64, Vec<Record>>,
    replay: &mut impl FnMut(Record),
) -> Result<(), String> {
    let header = &batch.header;
    // After a clean stop nothing has looked at it yet.
    if !batch.crc_matches() {
        return Err("the batch is damaged: its checksum is another".to_owned());
    }
    let set = batch
        .records(DECOMPRESSED_BATCH_BYTES_MAX)
        .map_err(|error| error.to_string())?;
    for record in &set {
        let record = record.map_err(|error| error.to_string())?;
        if header.is_control() {
            // The end of a transaction, whatever it is, is the end of its records here.
            let records = open.remove(&header.producer_id.0).unwrap_or_default();
            let kind = record.key.and_then(ControlRecordType::of_key);
            if kind == Some(ControlRecordType::Commit) {
                records.into_iter().for_each(&mut *replay);
            }
            continue;
        }
        match Record::decode(record.key, record.value) {
            Ok(Some(record)) if header.is_transactional() => {
                open.entry(header.producer_id.0).or_default().push(record);
            }
            Ok(Some(record)) => replay(record),
            Ok(None) => {}
            Err(error) => tracing::warn!(
                offset = record.offset.0,
                %error,
                "a record of the offsets topic is not understood and passed over"
            ),
        }
    }
    Ok(())
}
