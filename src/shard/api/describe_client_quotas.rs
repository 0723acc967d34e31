//! DescribeClientQuotas (KIP-546): none are set, since none can be.

use std::rc::Rc;

use thalweg_metadata::check_quota_filter;
use thalweg_protocol::messages::{DescribeClientQuotasRequest, DescribeClientQuotasResponse};

use crate::service::Call;
use crate::shard::Shard;

/// Answers with no quota, or what is wrong with the question.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: DescribeClientQuotasRequest,
) -> DescribeClientQuotasResponse {
    let mut response = DescribeClientQuotasResponse::default();
    match check_quota_filter(&request) {
        Ok(()) => response.entries = Some(Vec::new()),
        Err(refusal) => {
            response.error_code = refusal.code.code();
            response.error_message = Some(refusal.message);
            response.entries = None;
        }
    }
    shard.count_error(call.key, response.error_code);
    response
}
