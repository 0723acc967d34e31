//! ListConfigResources: what has settings (KIP-1142).

use std::rc::Rc;

use thalweg_metadata::configs::list_config_resources;
use thalweg_protocol::messages::{ListConfigResourcesRequest, ListConfigResourcesResponse};

use crate::service::Call;
use crate::shard::Shard;

/// Answers from the shard's view.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: ListConfigResourcesRequest,
) -> ListConfigResourcesResponse {
    list_config_resources(&shard.view().image, &request, call.version)
}
