//! ListGroups: what every coordinator of this broker has.

use std::rc::Rc;

use thalweg_group::{Ask, GroupQuery, ListedPage};
use thalweg_metadata::names::OFFSETS_TOPIC;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::list_groups_response::ListedGroup;
use thalweg_protocol::messages::{ListGroupsRequest, ListGroupsResponse};
use thalweg_reactor::task;
use thalweg_types::TopicPartition;

use crate::groups::GroupAnswer;
use crate::growing::{Growing, Grown};
use crate::service::Call;
use crate::shard::Shard;

/// Answers when each coordinator has, those of the same core in turns of their own. While one of them loads, that is the error of all, beside what
/// the others have: it passes. One whose partition can not be read is left out, as Kafka does, unless nothing else
/// can be told.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: ListGroupsRequest,
) -> Grown<ListGroupsResponse> {
    let query = GroupQuery::new(&request.states_filter, &request.types_filter);
    let mut asked = Vec::new();
    for home in homes(&shard) {
        // A coordinator of the same core answers within the turn.
        task::yield_now().await;
        let ask = Ask::List(query.clone(), None);
        asked.push((home, shard.ask_home(home, &call, ask).await));
    }
    let mut response = ListGroupsResponse::default();
    let mut growing = Growing::of(&shard, &call);
    let (mut told, mut left_out) = (false, None);
    for (home, coming) in asked {
        match all_of(&shard, &call, home, coming, &query, &mut growing).await {
            Ok(groups) => {
                told = true;
                response.groups.extend(groups);
            }
            Err(ErrorCode::CoordinatorLoadInProgress) => {
                response.error_code = ErrorCode::CoordinatorLoadInProgress.code();
            }
            Err(error) => left_out = Some(error),
        }
    }
    if let Some(error) = left_out.filter(|_| !told && response.error_code == 0) {
        response.error_code = error.code();
    }
    shard.count_error(call.key, response.error_code);
    growing.into_answer(response)
}

/// All groups of one coordinator, of which the first page is coming.
async fn all_of(
    shard: &Shard,
    call: &Call,
    home: TopicPartition,
    mut coming: GroupAnswer,
    query: &GroupQuery,
    growing: &mut Growing,
) -> Result<Vec<ListedGroup>, ErrorCode> {
    let mut groups = Vec::new();
    loop {
        let page: Result<ListedPage, ErrorCode> = coming.get().await?;
        let page = page?;
        growing.grow(page.groups.iter().map(weight).sum()).await;
        groups.extend(page.groups);
        if page.rest.is_none() {
            return Ok(groups);
        }
        task::yield_now().await;
        let ask = Ask::List(query.clone(), page.rest);
        coming = shard.ask_home(home, call, ask).await;
    }
}

/// Bytes of a row, roughly.
fn weight(group: &ListedGroup) -> usize {
    group.group_id.len()
        + group.protocol_type.len()
        + group.group_state.len()
        + group.group_type.len()
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
