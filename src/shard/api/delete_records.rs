//! DeleteRecords: logs begin later from now on (KIP-107).
//!
//! Owners move the starts at once, which hides the records; the answer waits until the starts are in
//! the checkpoint on the disk, so that no crash brings the records back. The next look of
//! `crate::retention` removes the segments.

use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::delete_records_request::DeleteRecordsTopic;
use thalweg_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use thalweg_protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse};
use thalweg_storage::StartKept;
use thalweg_types::Offset;

use crate::question::{Asking, Question, Row};
use crate::service::Call;
use crate::shard::Shard;

/// Answers when the new starts are durable.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let mut starts = Vec::new();
    let asking = sort(&shard, &request);
    let mut rows = asking
        .rows(&shard, |row, id, answer| {
            let start = answer.log_start()?;
            row.low_watermark = start.0;
            starts.push((id, start));
            Ok(())
        })
        .await;
    if !starts.is_empty() {
        let recorded = match shard.control.record_log_starts(starts).await {
            Some(Ok(StartKept::Durable)) => Ok(()),
            Some(Ok(StartKept::ByFirstSegment)) => Err(ErrorCode::KafkaStorageError),
            Some(Err(error)) => Err(error),
            None => Err(ErrorCode::NotLeaderOrFollower),
        };
        if let Err(error) = recorded {
            for row in rows.iter_mut().filter(|row| row.error_code == 0) {
                row.low_watermark = -1;
                row.error_code = error.code();
            }
        }
    }
    for row in &rows {
        shard.count_error(call.key, row.error_code);
    }
    let answer = |topic: DeleteRecordsTopic, partitions| DeleteRecordsTopicResult {
        name: topic.name,
        partitions,
    };
    DeleteRecordsResponse {
        topics: super::by_topic(request.topics, rows, |topic| topic.partitions.len(), answer),
        ..Default::default()
    }
}

/// Asks about each partition that is named.
fn sort(shard: &Shard, request: &DeleteRecordsRequest) -> Asking<DeleteRecordsPartitionResult> {
    let view = shard.view();
    let mut asking = Asking::new();
    for topic in &request.topics {
        let known = view
            .image
            .topic(&topic.name)
            .ok_or(ErrorCode::UnknownTopicOrPartition)
            .and_then(|known| {
                let config = shard.topic_config(known.id);
                let config = config.ok_or(ErrorCode::UnknownTopicOrPartition)?;
                known.may_delete_records(&config).map(|()| known.id)
            });
        for partition in &topic.partitions {
            let index = partition.partition_index;
            let question = Question::DeleteRecords {
                before: Offset(partition.offset),
            };
            let row = DeleteRecordsPartitionResult {
                partition_index: index,
                low_watermark: -1,
                error_code: ErrorCode::None.code(),
            };
            let owned = known.and_then(|topic| super::owned(&view, topic, index));
            asking.add(owned, question, row);
        }
    }
    asking
}

impl Row for DeleteRecordsPartitionResult {
    fn error_code(&mut self) -> &mut i16 {
        &mut self.error_code
    }
}
