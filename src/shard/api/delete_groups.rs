//! DeleteGroups: each group by its coordinator (KIP-229).

use std::rc::Rc;

use thalweg_group::Ask;
use thalweg_protocol::messages::delete_groups_response::DeletableGroupResult;
use thalweg_protocol::messages::{DeleteGroupsRequest, DeleteGroupsResponse};

use super::keep_first_of_each;
use crate::service::Call;
use crate::shard::Shard;

/// Answers when the tombstones are committed; a name that is given twice counts once.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    mut request: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    keep_first_of_each(&mut request.groups_names, call.pace(), String::clone).await;
    let asked = shard
        .ask_groups(request.groups_names, &call, Ask::Delete)
        .await;
    let mut results = Vec::with_capacity(asked.len());
    for (group_id, coming) in asked {
        let row: DeletableGroupResult = match coming.get().await {
            Ok(row) => row,
            Err(error) => DeletableGroupResult {
                group_id,
                error_code: error.code(),
            },
        };
        shard.count_error(call.key, row.error_code);
        results.push(row);
    }
    DeleteGroupsResponse {
        results,
        ..Default::default()
    }
}
