//! DeleteGroups: each group by its coordinator (KIP-229).

use std::rc::Rc;

use thalweg_group::Ask;
use thalweg_protocol::messages::delete_groups_response::DeletableGroupResult;
use thalweg_protocol::messages::{DeleteGroupsRequest, DeleteGroupsResponse};

use crate::groups::OfGroup;
use crate::growing::Growing;
use crate::service::Call;
use crate::shard::Shard;

/// Answers when the tombstones are committed; a name that is given twice counts once.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    let mut growing = Growing::of(&shard, &call);
    let names = request.groups_names;
    let results = shard.ask_each(names, &call, &mut growing, |group, _| Ask::Delete(group));
    DeleteGroupsResponse {
        results: results.await,
        ..Default::default()
    }
}

impl OfGroup for DeletableGroupResult {
    fn error_code(&self) -> i16 {
        self.error_code
    }

    fn weight(&self) -> usize {
        self.group_id.len()
    }
}
