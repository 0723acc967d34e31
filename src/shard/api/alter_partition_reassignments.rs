//! AlterPartitionReassignments (KIP-455): one broker has no other that a replica could move to, so that what it
//! is asked for is there already or refused. Kafka's tool sends it before it moves replicas between log directories.

use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::alter_partition_reassignments_request::ReassignablePartition;
use thalweg_protocol::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use thalweg_protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse,
};
use thalweg_types::{BrokerId, PartitionIndex};

use crate::service::Call;
use crate::shard::Shard;

/// Answers at once.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse {
    let view = shard.view();
    let mut responses = Vec::new();
    for topic in request.topics {
        let known = view.image.topic(&topic.name);
        let mut partitions = Vec::new();
        for asked in topic.partitions {
            let index = PartitionIndex(asked.partition_index);
            let partition = known.and_then(|known| known.partitions.get(&index));
            let present = partition.map(|partition| &partition.replicas[..]);
            let is_here = |broker| view.image.broker(broker).is_some();
            let refused = judge(present, &asked, is_here).err();
            let (code, text) = refused.unwrap_or((ErrorCode::None, None));
            shard.count_error(call.key, code.code());
            partitions.push(ReassignablePartitionResponse {
                partition_index: asked.partition_index,
                error_code: code.code(),
                error_message: text,
            });
        }
        responses.push(ReassignableTopicResponse {
            name: topic.name,
            partitions,
        });
    }
    AlterPartitionReassignmentsResponse {
        allow_replication_factor_change: request.allow_replication_factor_change,
        error_message: None,
        responses,
        ..Default::default()
    }
}

/// Whether the partition, if there is one, has the replicas that are asked for.
fn judge(
    present: Option<&[BrokerId]>,
    asked: &ReassignablePartition,
    is_here: impl Fn(BrokerId) -> bool,
) -> Result<(), (ErrorCode, Option<String>)> {
    let present = present.ok_or((ErrorCode::UnknownTopicOrPartition, None))?;
    let Some(replicas) = &asked.replicas else {
        return Err((ErrorCode::NoReassignmentInProgress, None));
    };
    let refused = |text: String| Err((ErrorCode::InvalidReplicaAssignment, Some(text)));
    if replicas.is_empty() {
        return refused("no replica is named".to_owned());
    }
    if let Some(missing) = replicas.iter().find(|id| !is_here(BrokerId(**id))) {
        return refused(format!("there is no broker {missing}"));
    }
    match present.iter().map(|id| &id.0).eq(replicas) {
        true => Ok(()),
        false => refused("one broker moves no replicas".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use thalweg_protocol::ErrorCode;
    use thalweg_protocol::messages::alter_partition_reassignments_request::ReassignablePartition;
    use thalweg_types::BrokerId;

    use super::judge;

    #[test]
    fn only_what_is_there_already_is_accepted() {
        let present = [BrokerId(1)];
        let asked = |replicas: Option<&[i32]>| {
            let asked = ReassignablePartition {
                partition_index: 0,
                replicas: replicas.map(<[i32]>::to_vec),
            };
            let judged = judge(Some(&present), &asked, |id| id == BrokerId(1));
            judged.map_err(|(code, _)| code)
        };
        assert_eq!(asked(Some(&[1])), Ok(()));
        assert_eq!(asked(None), Err(ErrorCode::NoReassignmentInProgress));
        for bad in [&[][..], &[2], &[1, 2], &[1, 1]] {
            let judged = asked(Some(bad));
            assert_eq!(judged, Err(ErrorCode::InvalidReplicaAssignment), "{bad:?}");
        }
        let unknown = judge(None, &ReassignablePartition::default(), |_| true);
        assert_eq!(
            unknown.map_err(|(code, _)| code),
            Err(ErrorCode::UnknownTopicOrPartition)
        );
    }
}
