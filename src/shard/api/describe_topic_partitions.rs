//! DescribeTopicPartitions: topics page by page (KIP-966).

use std::rc::Rc;

use thalweg_metadata::describe_topic_partitions;
use thalweg_protocol::messages::{DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse};

use super::operations;
use crate::service::Call;
use crate::shard::Shard;

/// Answers from the shard's view.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    _: Call,
    request: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let view = shard.view();
    let offline = shard.control.offline();
    let unserved = |id| offline.contains(id).then_some(view.broker_id);
    describe_topic_partitions(&view.image, &request, operations::TOPIC_ALL, unserved)
}
