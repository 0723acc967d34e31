//! Where the coordinator of a group is, and calls to it.

use thalweg_protocol::Request;
use thalweg_protocol::messages::FindCoordinatorRequest;

use crate::cluster::{Broker, Cluster};
use crate::connection::Connection;
use crate::error::{ClientError, Result};

/// The last version that names one group.
const FIND_COORDINATOR_OF_ONE: i16 = 3;
/// Kafka's number for the coordinator of a consumer group.
const GROUP_KEY: i8 = 0;

impl Cluster {
    /// Asks some broker for the coordinator of `group`, once.
    pub(crate) fn find_coordinator(&mut self, group: &str) -> Result<Broker> {
        let request = FindCoordinatorRequest {
            key: group.to_owned(),
            key_type: GROUP_KEY,
            coordinator_keys: Vec::new(),
        };
        let connection = self.any();
        let answer = match connection.and_then(|c| call_up_to(c, &request, FIND_COORDINATOR_OF_ONE))
        {
            Ok(answer) => answer,
            Err(error) => {
                self.prepare_retry_somewhere(&error);
                return Err(error);
            }
        };
        let what = || format!("find the coordinator of group {group}");
        ClientError::check(answer.error_code, what, answer.error_message.as_deref())?;
        Ok(Broker {
            id: answer.node_id,
            host: answer.host,
            port: answer.port,
            rack: None,
        })
    }

    /// Does `attempt` at the coordinator of `group`, again while that may help: a coordinator may be
    /// loading its groups, or have moved.
    pub(crate) fn at_coordinator<T>(
        &mut self,
        group: &str,
        mut attempt: impl FnMut(&mut Connection, &Broker) -> Result<T>,
    ) -> Result<T> {
        self.retry(|cluster| {
            let broker = cluster.find_coordinator(group)?;
            cluster.learn_broker(&broker);
            attempt(cluster.broker(broker.id)?, &broker)
        })
    }
}

/// Calls in the newest common version that is not above `newest`.
pub(crate) fn call_up_to<R: Request>(
    connection: &mut Connection,
    request: &R,
    newest: i16,
) -> Result<R::Response> {
    let version = connection.api_table().newest_up_to::<R>(newest);
    match version {
        Some(version) => connection.call_at(request, version),
        None => connection.call(request),
    }
}
