//! DescribeConfigs: what the settings are and where they come from.

use std::rc::Rc;

use thalweg_metadata::configs::Describing;
use thalweg_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};

use super::keep_first_of_each;
use crate::service::Call;
use crate::shard::Shard;

/// Answers from the shard's view.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    mut request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    keep_first_of_each(&mut request.resources, call.pace(), |resource| {
        (resource.resource_type, resource.resource_name.clone())
    })
    .await;
    let view = shard.view();
    let log_levels = shard.control.log_levels();
    let describing = Describing {
        image: &view.image,
        config: &view.config,
        local: view.broker_id,
        log_levels: &log_levels,
    };
    let mut response = DescribeConfigsResponse::default();
    let mut pace = call.pace();
    for resource in &request.resources {
        let result = describing.result(resource, &request);
        pace.steps(1 + result.configs.len()).await;
        shard.count_error(call.key, result.error_code);
        response.results.push(result);
    }
    response
}
