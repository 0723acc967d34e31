//! DescribeUserScramCredentials (KIP-554): no user has any, since none can be made.

use std::collections::BTreeMap;
use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::describe_user_scram_credentials_response::DescribeUserScramCredentialsResult;
use thalweg_protocol::messages::{
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
};

use crate::service::Call;
use crate::shard::Shard;

/// All users with credentials are none; one that is named does not exist.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: DescribeUserScramCredentialsRequest,
) -> DescribeUserScramCredentialsResponse {
    let mut asked: BTreeMap<String, usize> = BTreeMap::new();
    for user in request.users.unwrap_or_default() {
        *asked.entry(user.name).or_default() += 1;
    }
    let results: Vec<_> = asked.into_iter().map(|(user, n)| row(user, n)).collect();
    for result in &results {
        shard.count_error(call.key, result.error_code);
    }
    DescribeUserScramCredentialsResponse {
        results,
        ..Default::default()
    }
}

fn row(user: String, times_asked: usize) -> DescribeUserScramCredentialsResult {
    let (code, text) = match times_asked {
        1 => (
            ErrorCode::ResourceNotFound,
            "This user has no SCRAM credentials.",
        ),
        _ => (
            ErrorCode::DuplicateResource,
            "A request may name each user once.",
        ),
    };
    DescribeUserScramCredentialsResult {
        user,
        error_code: code.code(),
        error_message: Some(text.to_owned()),
        ..Default::default()
    }
}
