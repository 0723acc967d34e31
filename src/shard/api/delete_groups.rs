//! DeleteGroups: each group by its coordinator (KIP-229).

use std::rc::Rc;

use thalweg_group::Ask;
use thalweg_protocol::messages::delete_groups_response::DeletableGroupResult;
use thalweg_protocol::messages::{DeleteGroupsRequest, DeleteGroupsResponse};

use crate::growing::Growing;
use crate::service::Call;
use crate::shard::Shard;

/// Answers when the tombstones are committed; a name that is given twice counts once.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    let code = |row: &DeletableGroupResult| row.error_code;
    let weight = |row: &DeletableGroupResult| row.group_id.len();
    let mut growing = Growing::of(&shard, &call);
    let names = request.groups_names;
    let results = shard.ask_each(names, &call, &mut growing, Ask::Delete, (code, weight));
    DeleteGroupsResponse {
        results: results.await,
        ..Default::default()
    }
}
