//! DeleteGroups: each group by its coordinator (KIP-229).

use std::collections::HashSet;
use std::rc::Rc;

use thalweg_group::Ask;
use thalweg_protocol::messages::delete_groups_response::DeletableGroupResult;
use thalweg_protocol::messages::{DeleteGroupsRequest, DeleteGroupsResponse};

use crate::pace::Pace;
use crate::service::Call;
use crate::shard::Shard;

/// Answers when the tombstones are committed; a name that is given twice counts once.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    let mut seen = HashSet::new();
    let mut asked = Vec::new();
    let mut pace = Pace::default();
    for id in request.groups_names {
        pace.step().await;
        if !seen.insert(id.clone()) {
            continue;
        }
        let ask = Ask::Delete(id.clone());
        let coming = shard.ask_group(&id, &call, ask).await;
        asked.push((id, coming));
    }
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
