//! DescribeConfigs: what the settings are and where they come from.

use std::rc::Rc;

use thalweg_metadata::configs::Describing;
use thalweg_protocol::messages::describe_configs_response::DescribeConfigsResult;
use thalweg_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};

use super::keep_first_of_each;
use crate::growing::{Growing, Grown};
use crate::service::Call;
use crate::shard::Shard;

/// Answers from the shard's view.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    mut request: DescribeConfigsRequest,
) -> Grown<DescribeConfigsResponse> {
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
    let mut growing = Growing::of(&shard, &call);
    for resource in &request.resources {
        let result = describing.result(resource, &request);
        growing.grow(weight(&result)).await;
        shard.count_error(call.key, result.error_code);
        response.results.push(result);
    }
    growing.into_answer(response)
}

/// Bytes of a row, roughly.
fn weight(result: &DescribeConfigsResult) -> usize {
    let text = |text: &Option<String>| text.as_deref().map_or(0, str::len);
    let settings = result.configs.iter().map(|setting| {
        let synonyms = setting.synonyms.iter();
        let synonyms = synonyms.map(|one| one.name.len() + text(&one.value));
        let own = setting.name.len() + text(&setting.value) + text(&setting.documentation);
        own + synonyms.sum::<usize>()
    });
    result.resource_name.len() + settings.sum::<usize>()
}
