//! ListPartitionReassignments (KIP-455): nothing is ever under way on one broker.

use std::rc::Rc;

use thalweg_protocol::messages::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};

use crate::service::Call;
use crate::shard::Shard;

/// Answers with no reassignment.
pub(crate) async fn answer(
    _: Rc<Shard>,
    _: Call,
    _: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    ListPartitionReassignmentsResponse {
        error_message: None,
        ..Default::default()
    }
}
