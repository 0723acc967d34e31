//! What can go wrong, and what to do about it.

use std::io;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::records::BatchError;
use thalweg_protocol::wire::{DecodeError, EncodeError};
use thiserror::Error;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, ClientError>;

/// A failed operation.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No connection could be made.
    #[error("cannot reach a broker at {address}: {source}")]
    Unreachable {
        /// As given or as the cluster advertises it.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The answer did not come in time. It may still arrive: the connection is of no more use.
    #[error("no answer from {address} within {millis} ms")]
    Timeout {
        /// The broker.
        address: String,
        /// The limit.
        millis: u128,
    },
    /// The broker closed the connection.
    #[error("{address} closed the connection")]
    Closed {
        /// The broker.
        address: String,
    },
    /// The socket failed.
    #[error("connection to {address}: {source}")]
    Io {
        /// The broker.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The broker sent bytes that are not an answer to what was asked.
    #[error("{address} sent something that is no answer to {api}: {detail}")]
    BadAnswer {
        /// The broker.
        address: String,
        /// Name of the API.
        api: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// The request can not be written in the negotiated version.
    #[error("cannot encode the request: {0}")]
    Encode(#[from] EncodeError),
    /// Broker and client share no version of an API.
    #[error("{address} does not speak {api} in a version this client knows")]
    Unsupported {
        /// The broker.
        address: String,
        /// Name of the API.
        api: &'static str,
    },
    /// The broker answered with an error code.
    #[error("{what}: {}{}", code_name(*.code), detail(.message.as_deref()))]
    Refused {
        /// What was asked, with its object, for example `create topic t`.
        what: String,
        /// The code on the wire.
        code: i16,
        /// The broker's own words.
        message: Option<String>,
    },
    /// A batch that came from the broker is damaged.
    #[error("damaged batch in {topic}-{partition} at offset {offset}: {detail}")]
    Corrupt {
        /// Topic name.
        topic: String,
        /// Partition index.
        partition: i32,
        /// Base offset of the batch, or the offset asked for.
        offset: i64,
        /// What is wrong.
        detail: String,
    },
    /// A batch is sound but takes more memory than this client gives to one.
    #[error(
        "the batch in {topic}-{partition} at offset {offset} expands beyond {limit} bytes, which this \
         client does not read. It is not damaged: read it with another client, such as Kafka's \
         kafka-console-consumer.sh or kcat, or go on behind it, at offset {next}"
    )]
    Expands {
        /// Topic name.
        topic: String,
        /// Partition index.
        partition: i32,
        /// Base offset of the batch.
        offset: i64,
        /// First offset behind the batch.
        next: i64,
        /// The limit, in bytes when decompressed.
        limit: usize,
    },
    /// The caller asked for something that can not be: a partition that does not exist, a record that is
    /// too large for any batch.
    #[error("{0}")]
    Invalid(String),
}

fn code_name(code: i16) -> String {
    match ErrorCode::from_code(code) {
        Some(known) => known.name().to_owned(),
        None => format!("error code {code}"),
    }
}

fn detail(message: Option<&str>) -> String {
    message
        .filter(|m| !m.is_empty())
        .map_or_else(String::new, |m| format!(" ({m})"))
}

/// What a caller can do about a [`ClientError`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Wait a little and send the same again.
    Retry,
    /// Fetch metadata anew, then send to the leader it names.
    RefreshAndRetry,
    /// The connection is of no more use: open one, then send again (it may have been done already).
    ReconnectAndRetry,
    /// It will fail again.
    GiveUp,
}

impl ClientError {
    /// `code` as an error unless it says that all is well.
    ///
    /// # Errors
    /// [`ClientError::Refused`] for every code but 0.
    pub fn check(code: i16, what: impl FnOnce() -> String, message: Option<&str>) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        Err(ClientError::Refused {
            what: what(),
            code,
            message: message.map(str::to_owned),
        })
    }

    pub(crate) fn corrupt(topic: &str, partition: i32, offset: i64, error: &BatchError) -> Self {
        let detail = error.to_string();
        ClientError::Corrupt {
            topic: topic.to_owned(),
            partition,
            offset,
            detail,
        }
    }

    pub(crate) fn undecodable(address: &str, api: &'static str, error: &DecodeError) -> Self {
        ClientError::BadAnswer {
            address: address.to_owned(),
            api,
            detail: error.to_string(),
        }
    }

    /// The broker's error code, if it answered with one that Kafka's table has.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            ClientError::Refused { code, .. } => ErrorCode::from_code(*code),
            ClientError::Unreachable { .. }
            | ClientError::Timeout { .. }
            | ClientError::Closed { .. }
            | ClientError::Io { .. }
            | ClientError::BadAnswer { .. }
            | ClientError::Encode(_)
            | ClientError::Unsupported { .. }
            | ClientError::Corrupt { .. }
            | ClientError::Expands { .. }
            | ClientError::Invalid(_) => None,
        }
    }

    /// What to do next.
    #[must_use]
    pub fn advice(&self) -> Advice {
        match self {
            ClientError::Unreachable { .. }
            | ClientError::Timeout { .. }
            | ClientError::Closed { .. }
            | ClientError::Io { .. } => Advice::ReconnectAndRetry,
            ClientError::Refused { code, .. } => match ErrorCode::from_code(*code) {
                Some(code) if needs_metadata(code) => Advice::RefreshAndRetry,
                Some(code) if code.is_retriable() => Advice::Retry,
                Some(_) | None => Advice::GiveUp,
            },
            ClientError::BadAnswer { .. }
            | ClientError::Encode(_)
            | ClientError::Unsupported { .. }
            | ClientError::Corrupt { .. }
            | ClientError::Expands { .. }
            | ClientError::Invalid(_) => Advice::GiveUp,
        }
    }
}

/// Codes that say the sender's picture of the cluster is old.
fn needs_metadata(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NotLeaderOrFollower
            | ErrorCode::LeaderNotAvailable
            | ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId
            | ErrorCode::FencedLeaderEpoch
            | ErrorCode::UnknownLeaderEpoch
            | ErrorCode::NotController
            | ErrorCode::KafkaStorageError
            | ErrorCode::ReplicaNotAvailable
            | ErrorCode::InconsistentTopicId
    )
}

#[cfg(test)]
mod tests {
    use super::{Advice, ClientError};

    fn refused(code: i16) -> ClientError {
        ClientError::Refused {
            what: "x".into(),
            code,
            message: None,
        }
    }

    #[test]
    fn advice_by_code() {
        assert_eq!(refused(6).advice(), Advice::RefreshAndRetry);
        assert_eq!(refused(7).advice(), Advice::Retry);
        assert_eq!(refused(36).advice(), Advice::GiveUp);
        assert_eq!(refused(9_999).advice(), Advice::GiveUp);
        assert_eq!(refused(9_999).to_string(), "x: error code 9999");
        assert_eq!(refused(36).to_string(), "x: TOPIC_ALREADY_EXISTS");
    }
}
