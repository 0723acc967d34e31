//! DescribeCluster (KIP-700).

use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use thalweg_protocol::messages::{DescribeClusterRequest, DescribeClusterResponse};

use super::operations;
use crate::service::Call;
use crate::shard::Shard;

/// Values of `endpoint_type` (KIP-919).
const ENDPOINT_BROKERS: i8 = 1;
const ENDPOINT_CONTROLLERS: i8 = 2;

/// Answers from the shard's view.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse {
    let view = shard.view();
    if request.endpoint_type != ENDPOINT_BROKERS {
        let error = match request.endpoint_type {
            ENDPOINT_CONTROLLERS => ErrorCode::MismatchedEndpointType,
            _ => ErrorCode::UnsupportedEndpointType,
        };
        return DescribeClusterResponse {
            error_code: error.code(),
            error_message: Some(
                "this is a broker's listener: ask it with endpoint type 1 (brokers)".to_owned(),
            ),
            endpoint_type: request.endpoint_type,
            ..Default::default()
        };
    }
    let endpoint = view.endpoint(call.conn.listener());
    let mut response = DescribeClusterResponse {
        endpoint_type: ENDPOINT_BROKERS,
        cluster_id: view.cluster_id.0.clone(),
        controller_id: view.broker_id.0,
        brokers: vec![DescribeClusterBroker {
            broker_id: view.broker_id.0,
            host: endpoint.host.clone(),
            port: i32::from(endpoint.port),
            rack: view.config.broker_rack().map(str::to_owned),
            ..Default::default()
        }],
        ..Default::default()
    };
    if request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = operations::CLUSTER_ALL;
    }
    response
}
