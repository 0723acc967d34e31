//! DescribeAcls, CreateAcls, DeleteAcls as Kafka answers them without an authorizer.

use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::create_acls_response::AclCreationResult;
use thalweg_protocol::messages::delete_acls_response::DeleteAclsFilterResult;
use thalweg_protocol::messages::{
    CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse,
    DescribeAclsRequest, DescribeAclsResponse,
};

use crate::service::Call;
use crate::shard::Shard;

const NO_AUTHORIZER: &str = "No Authorizer is configured.";

/// There are no ACLs to describe.
pub(crate) async fn describe(
    _: Rc<Shard>,
    _: Call,
    _: DescribeAclsRequest,
) -> DescribeAclsResponse {
    DescribeAclsResponse {
        error_code: ErrorCode::SecurityDisabled.code(),
        error_message: Some(NO_AUTHORIZER.to_owned()),
        ..Default::default()
    }
}

/// None can be made.
pub(crate) async fn create(
    _: Rc<Shard>,
    _: Call,
    request: CreateAclsRequest,
) -> CreateAclsResponse {
    let refused = AclCreationResult {
        error_code: ErrorCode::SecurityDisabled.code(),
        error_message: Some(NO_AUTHORIZER.to_owned()),
    };
    CreateAclsResponse {
        results: vec![refused; request.creations.len()],
        ..Default::default()
    }
}

/// None can be deleted.
pub(crate) async fn delete(
    _: Rc<Shard>,
    _: Call,
    request: DeleteAclsRequest,
) -> DeleteAclsResponse {
    let refused = DeleteAclsFilterResult {
        error_code: ErrorCode::SecurityDisabled.code(),
        error_message: Some(NO_AUTHORIZER.to_owned()),
        ..Default::default()
    };
    DeleteAclsResponse {
        filter_results: vec![refused; request.filters.len()],
        ..Default::default()
    }
}
