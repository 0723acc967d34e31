//! Kafka's error codes, as every `error_code` field carries them.

use std::fmt;

/// What a client may do about an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Retry {
    Never,
    May,
}

macro_rules! error_codes {
    ($($code:literal $variant:ident $name:literal $retry:ident,)*) => {
        /// An error code of Kafka's public table.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(i16)]
        pub enum ErrorCode {
            $(
                #[doc = concat!("`", $name, "`, ", stringify!($code), ".")]
                $variant = $code,
            )*
        }

        impl ErrorCode {
            /// Every code, in numeric order.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$variant,)*];

            /// Kafka's own name, for example `UNKNOWN_TOPIC_OR_PARTITION`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(ErrorCode::$variant => $name,)*
                }
            }

            fn retry(self) -> Retry {
                match self {
                    $(ErrorCode::$variant => Retry::$retry,)*
                }
            }
        }
    };
}

error_codes! {
    -1 UnknownServerError "UNKNOWN_SERVER_ERROR" Never,
    0 None "NONE" Never,
    1 OffsetOutOfRange "OFFSET_OUT_OF_RANGE" Never,
    2 CorruptMessage "CORRUPT_MESSAGE" May,
    3 UnknownTopicOrPartition "UNKNOWN_TOPIC_OR_PARTITION" May,
    4 InvalidFetchSize "INVALID_FETCH_SIZE" Never,
    5 LeaderNotAvailable "LEADER_NOT_AVAILABLE" May,
    6 NotLeaderOrFollower "NOT_LEADER_OR_FOLLOWER" May,
    7 RequestTimedOut "REQUEST_TIMED_OUT" May,
    8 BrokerNotAvailable "BROKER_NOT_AVAILABLE" Never,
    9 ReplicaNotAvailable "REPLICA_NOT_AVAILABLE" May,
    10 MessageTooLarge "MESSAGE_TOO_LARGE" Never,
    11 StaleControllerEpoch "STALE_CONTROLLER_EPOCH" Never,
    12 OffsetMetadataTooLarge "OFFSET_METADATA_TOO_LARGE" Never,
    13 NetworkException "NETWORK_EXCEPTION" May,
    14 CoordinatorLoadInProgress "COORDINATOR_LOAD_IN_PROGRESS" May,
    15 CoordinatorNotAvailable "COORDINATOR_NOT_AVAILABLE" May,
    16 NotCoordinator "NOT_COORDINATOR" May,
    17 InvalidTopicException "INVALID_TOPIC_EXCEPTION" Never,
    18 RecordListTooLarge "RECORD_LIST_TOO_LARGE" Never,
    19 NotEnoughReplicas "NOT_ENOUGH_REPLICAS" May,
    20 NotEnoughReplicasAfterAppend "NOT_ENOUGH_REPLICAS_AFTER_APPEND" May,
    21 InvalidRequiredAcks "INVALID_REQUIRED_ACKS" Never,
    22 IllegalGeneration "ILLEGAL_GENERATION" Never,
    23 InconsistentGroupProtocol "INCONSISTENT_GROUP_PROTOCOL" Never,
    24 InvalidGroupId "INVALID_GROUP_ID" Never,
    25 UnknownMemberId "UNKNOWN_MEMBER_ID" Never,
    26 InvalidSessionTimeout "INVALID_SESSION_TIMEOUT" Never,
    27 RebalanceInProgress "REBALANCE_IN_PROGRESS" Never,
    28 InvalidCommitOffsetSize "INVALID_COMMIT_OFFSET_SIZE" Never,
    29 TopicAuthorizationFailed "TOPIC_AUTHORIZATION_FAILED" Never,
    30 GroupAuthorizationFailed "GROUP_AUTHORIZATION_FAILED" Never,
    31 ClusterAuthorizationFailed "CLUSTER_AUTHORIZATION_FAILED" Never,
    32 InvalidTimestamp "INVALID_TIMESTAMP" Never,
    33 UnsupportedSaslMechanism "UNSUPPORTED_SASL_MECHANISM" Never,
    34 IllegalSaslState "ILLEGAL_SASL_STATE" Never,
    35 UnsupportedVersion "UNSUPPORTED_VERSION" Never,
    36 TopicAlreadyExists "TOPIC_ALREADY_EXISTS" Never,
    37 InvalidPartitions "INVALID_PARTITIONS" Never,
    38 InvalidReplicationFactor "INVALID_REPLICATION_FACTOR" Never,
    39 InvalidReplicaAssignment "INVALID_REPLICA_ASSIGNMENT" Never,
    40 InvalidConfig "INVALID_CONFIG" Never,
    41 NotController "NOT_CONTROLLER" May,
    42 InvalidRequest "INVALID_REQUEST" Never,
    43 UnsupportedForMessageFormat "UNSUPPORTED_FOR_MESSAGE_FORMAT" Never,
    44 PolicyViolation "POLICY_VIOLATION" Never,
    45 OutOfOrderSequenceNumber "OUT_OF_ORDER_SEQUENCE_NUMBER" Never,
    46 DuplicateSequenceNumber "DUPLICATE_SEQUENCE_NUMBER" Never,
    47 InvalidProducerEpoch "INVALID_PRODUCER_EPOCH" Never,
    48 InvalidTxnState "INVALID_TXN_STATE" Never,
    49 InvalidProducerIdMapping "INVALID_PRODUCER_ID_MAPPING" Never,
    50 InvalidTransactionTimeout "INVALID_TRANSACTION_TIMEOUT" Never,
    51 ConcurrentTransactions "CONCURRENT_TRANSACTIONS" May,
    52 TransactionCoordinatorFenced "TRANSACTION_COORDINATOR_FENCED" Never,
    53 TransactionalIdAuthorizationFailed "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" Never,
    54 SecurityDisabled "SECURITY_DISABLED" Never,
    55 OperationNotAttempted "OPERATION_NOT_ATTEMPTED" Never,
    56 KafkaStorageError "KAFKA_STORAGE_ERROR" May,
    57 LogDirNotFound "LOG_DIR_NOT_FOUND" Never,
    58 SaslAuthenticationFailed "SASL_AUTHENTICATION_FAILED" Never,
    59 UnknownProducerId "UNKNOWN_PRODUCER_ID" Never,
    60 ReassignmentInProgress "REASSIGNMENT_IN_PROGRESS" Never,
    61 DelegationTokenAuthDisabled "DELEGATION_TOKEN_AUTH_DISABLED" Never,
    62 DelegationTokenNotFound "DELEGATION_TOKEN_NOT_FOUND" Never,
    63 DelegationTokenOwnerMismatch "DELEGATION_TOKEN_OWNER_MISMATCH" Never,
    64 DelegationTokenRequestNotAllowed "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" Never,
    65 DelegationTokenAuthorizationFailed "DELEGATION_TOKEN_AUTHORIZATION_FAILED" Never,
    66 DelegationTokenExpired "DELEGATION_TOKEN_EXPIRED" Never,
    67 InvalidPrincipalType "INVALID_PRINCIPAL_TYPE" Never,
    68 NonEmptyGroup "NON_EMPTY_GROUP" Never,
    69 GroupIdNotFound "GROUP_ID_NOT_FOUND" Never,
    70 FetchSessionIdNotFound "FETCH_SESSION_ID_NOT_FOUND" May,
    71 InvalidFetchSessionEpoch "INVALID_FETCH_SESSION_EPOCH" May,
    72 ListenerNotFound "LISTENER_NOT_FOUND" May,
    73 TopicDeletionDisabled "TOPIC_DELETION_DISABLED" Never,
    74 FencedLeaderEpoch "FENCED_LEADER_EPOCH" May,
    75 UnknownLeaderEpoch "UNKNOWN_LEADER_EPOCH" May,
    76 UnsupportedCompressionType "UNSUPPORTED_COMPRESSION_TYPE" Never,
    77 StaleBrokerEpoch "STALE_BROKER_EPOCH" Never,
    78 OffsetNotAvailable "OFFSET_NOT_AVAILABLE" May,
    79 MemberIdRequired "MEMBER_ID_REQUIRED" Never,
    80 PreferredLeaderNotAvailable "PREFERRED_LEADER_NOT_AVAILABLE" May,
    81 GroupMaxSizeReached "GROUP_MAX_SIZE_REACHED" Never,
    82 FencedInstanceId "FENCED_INSTANCE_ID" Never,
    83 EligibleLeadersNotAvailable "ELIGIBLE_LEADERS_NOT_AVAILABLE" May,
    84 ElectionNotNeeded "ELECTION_NOT_NEEDED" May,
    85 NoReassignmentInProgress "NO_REASSIGNMENT_IN_PROGRESS" Never,
    86 GroupSubscribedToTopic "GROUP_SUBSCRIBED_TO_TOPIC" Never,
    87 InvalidRecord "INVALID_RECORD" Never,
    88 UnstableOffsetCommit "UNSTABLE_OFFSET_COMMIT" May,
    89 ThrottlingQuotaExceeded "THROTTLING_QUOTA_EXCEEDED" May,
    90 ProducerFenced "PRODUCER_FENCED" Never,
    91 ResourceNotFound "RESOURCE_NOT_FOUND" Never,
    92 DuplicateResource "DUPLICATE_RESOURCE" Never,
    93 UnacceptableCredential "UNACCEPTABLE_CREDENTIAL" Never,
    94 InconsistentVoterSet "INCONSISTENT_VOTER_SET" Never,
    95 InvalidUpdateVersion "INVALID_UPDATE_VERSION" Never,
    96 FeatureUpdateFailed "FEATURE_UPDATE_FAILED" Never,
    97 PrincipalDeserializationFailure "PRINCIPAL_DESERIALIZATION_FAILURE" Never,
    98 SnapshotNotFound "SNAPSHOT_NOT_FOUND" Never,
    99 PositionOutOfRange "POSITION_OUT_OF_RANGE" Never,
    100 UnknownTopicId "UNKNOWN_TOPIC_ID" May,
    101 DuplicateBrokerRegistration "DUPLICATE_BROKER_REGISTRATION" Never,
    102 BrokerIdNotRegistered "BROKER_ID_NOT_REGISTERED" Never,
    103 InconsistentTopicId "INCONSISTENT_TOPIC_ID" May,
    104 InconsistentClusterId "INCONSISTENT_CLUSTER_ID" Never,
    105 TransactionalIdNotFound "TRANSACTIONAL_ID_NOT_FOUND" Never,
    106 FetchSessionTopicIdError "FETCH_SESSION_TOPIC_ID_ERROR" May,
    107 IneligibleReplica "INELIGIBLE_REPLICA" Never,
    108 NewLeaderElected "NEW_LEADER_ELECTED" Never,
    109 OffsetMovedToTieredStorage "OFFSET_MOVED_TO_TIERED_STORAGE" Never,
    110 FencedMemberEpoch "FENCED_MEMBER_EPOCH" Never,
    111 UnreleasedInstanceId "UNRELEASED_INSTANCE_ID" Never,
    112 UnsupportedAssignor "UNSUPPORTED_ASSIGNOR" Never,
    113 StaleMemberEpoch "STALE_MEMBER_EPOCH" Never,
    114 MismatchedEndpointType "MISMATCHED_ENDPOINT_TYPE" Never,
    115 UnsupportedEndpointType "UNSUPPORTED_ENDPOINT_TYPE" Never,
    116 UnknownControllerId "UNKNOWN_CONTROLLER_ID" Never,
    117 UnknownSubscriptionId "UNKNOWN_SUBSCRIPTION_ID" Never,
    118 TelemetryTooLarge "TELEMETRY_TOO_LARGE" Never,
    119 InvalidRegistration "INVALID_REGISTRATION" Never,
    120 TransactionAbortable "TRANSACTION_ABORTABLE" Never,
    121 InvalidRecordState "INVALID_RECORD_STATE" Never,
    122 ShareSessionNotFound "SHARE_SESSION_NOT_FOUND" May,
    123 InvalidShareSessionEpoch "INVALID_SHARE_SESSION_EPOCH" May,
    124 FencedStateEpoch "FENCED_STATE_EPOCH" Never,
    125 InvalidVoterKey "INVALID_VOTER_KEY" Never,
    126 DuplicateVoter "DUPLICATE_VOTER" Never,
    127 VoterNotFound "VOTER_NOT_FOUND" Never,
    128 InvalidRegularExpression "INVALID_REGULAR_EXPRESSION" Never,
    129 RebootstrapRequired "REBOOTSTRAP_REQUIRED" Never,
    130 StreamsInvalidTopology "STREAMS_INVALID_TOPOLOGY" Never,
    131 StreamsInvalidTopologyEpoch "STREAMS_INVALID_TOPOLOGY_EPOCH" Never,
    132 StreamsTopologyFenced "STREAMS_TOPOLOGY_FENCED" Never,
    133 ShareSessionLimitReached "SHARE_SESSION_LIMIT_REACHED" May,
}

impl ErrorCode {
    /// The number on the wire.
    #[must_use]
    pub fn code(self) -> i16 {
        self as i16
    }

    /// The code with this number; `None` for one that is not in the table.
    #[must_use]
    pub fn from_code(code: i16) -> Option<ErrorCode> {
        // The table has no holes: -1 stands first.
        let index = usize::try_from(i32::from(code) + 1).ok()?;
        Self::ALL.get(index).copied()
    }

    /// True for 0.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == ErrorCode::None
    }

    /// May the same request succeed later?
    #[must_use]
    pub fn is_retriable(self) -> bool {
        self.retry() == Retry::May
    }
}

// Derived, it would need a mark inside the table.
#[allow(clippy::derivable_impls)]
impl Default for ErrorCode {
    fn default() -> ErrorCode {
        ErrorCode::None
    }
}

impl From<ErrorCode> for i16 {
    fn from(code: ErrorCode) -> i16 {
        code.code()
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorCode;

    #[test]
    fn numbers_and_codes_match() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_code(code.code()), Some(*code));
        }
        assert_eq!(ErrorCode::from_code(-2), None);
        assert_eq!(ErrorCode::from_code(i16::MAX), None);
        assert_eq!(ErrorCode::from_code(i16::MIN), None);
        assert_eq!(
            ErrorCode::from_code(3),
            Some(ErrorCode::UnknownTopicOrPartition)
        );
    }

    #[test]
    fn the_default_is_no_error() {
        assert!(ErrorCode::default().is_none());
        assert_eq!(ErrorCode::UnknownServerError.code(), -1);
    }
}
