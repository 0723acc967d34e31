//! ListGroups: what every coordinator of this broker has.

use std::rc::Rc;

use thalweg_group::{Ask, GroupQuery};
use thalweg_metadata::names::OFFSETS_TOPIC;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::list_groups_response::ListedGroup;
use thalweg_protocol::messages::{ListGroupsRequest, ListGroupsResponse};
use thalweg_types::TopicPartition;

use crate::service::Call;
use crate::shard::Shard;

/// Answers when each coordinator has. While one of them loads, that is the error of all, beside what
/// the others have.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: ListGroupsRequest,
) -> ListGroupsResponse {
    let query = GroupQuery::new(&request.states_filter, &request.types_filter);
    let mut asked = Vec::new();
    for home in homes(&shard) {
        let ask = Ask::List(query.clone());
        asked.push(shard.ask_home(home, &call, ask).await);
    }
    let mut response = ListGroupsResponse::default();
    for coming in asked {
        let found: Result<Result<Vec<ListedGroup>, ErrorCode>, ErrorCode> = coming.get().await;
        match found.and_then(|found| found) {
            Ok(groups) => response.groups.extend(groups),
            Err(error) => response.error_code = error.code(),
        }
    }
    shard.count_error(call.key, response.error_code);
    response
}

fn homes(shard: &Shard) -> Vec<TopicPartition> {
    let view = shard.view();
    let Some(topic) = view.image.topic(OFFSETS_TOPIC) else {
        return Vec::new();
    };
    let id = topic.id;
    let partitions = topic.partitions.keys();
    partitions
        .map(|index| TopicPartition {
            topic: id,
            partition: *index,
        })
        .collect()
}
