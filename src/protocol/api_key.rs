//! The keys of Kafka's APIs.

use std::fmt;

use crate::wire::DecodeError;

macro_rules! api_keys {
    ($($key:literal $api:ident $flexible:expr,)*) => {
        /// An API, by the key that its requests carry. Keys 4 to 7 are gone since Kafka 4.0.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(i16)]
        pub enum ApiKey {
            $(
                #[doc = concat!("Key ", stringify!($key), ".")]
                $api = $key,
            )*
        }

        impl ApiKey {
            /// Every API, in order of keys.
            pub const ALL: &'static [ApiKey] = &[$(ApiKey::$api,)*];

            /// Kafka's own name, for example `Fetch`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(ApiKey::$api => stringify!($api),)*
                }
            }

            /// First version with compact lengths and tagged fields (KIP-482), which also decides
            /// the header versions; `None` when there is no such version.
            #[must_use]
            pub fn first_flexible(self) -> Option<i16> {
                match self {
                    $(ApiKey::$api => $flexible,)*
                }
            }
        }

        impl TryFrom<i16> for ApiKey {
            type Error = DecodeError;

            fn try_from(key: i16) -> Result<ApiKey, DecodeError> {
                match key {
                    $($key => Ok(ApiKey::$api),)*
                    other => Err(DecodeError::ApiKey(other)),
                }
            }
        }
    };
}

api_keys! {
    0 Produce Some(9),
    1 Fetch Some(12),
    2 ListOffsets Some(6),
    3 Metadata Some(9),
    8 OffsetCommit Some(8),
    9 OffsetFetch Some(6),
    10 FindCoordinator Some(3),
    11 JoinGroup Some(6),
    12 Heartbeat Some(4),
    13 LeaveGroup Some(4),
    14 SyncGroup Some(4),
    15 DescribeGroups Some(5),
    16 ListGroups Some(3),
    17 SaslHandshake None,
    18 ApiVersions Some(3),
    19 CreateTopics Some(5),
    20 DeleteTopics Some(4),
    21 DeleteRecords Some(2),
    22 InitProducerId Some(2),
    23 OffsetForLeaderEpoch Some(4),
    24 AddPartitionsToTxn Some(3),
    25 AddOffsetsToTxn Some(3),
    26 EndTxn Some(3),
    27 WriteTxnMarkers Some(1),
    28 TxnOffsetCommit Some(3),
    29 DescribeAcls Some(2),
    30 CreateAcls Some(2),
    31 DeleteAcls Some(2),
    32 DescribeConfigs Some(4),
    33 AlterConfigs Some(2),
    34 AlterReplicaLogDirs Some(2),
    35 DescribeLogDirs Some(2),
    36 SaslAuthenticate Some(2),
    37 CreatePartitions Some(2),
    38 CreateDelegationToken Some(2),
    39 RenewDelegationToken Some(2),
    40 ExpireDelegationToken Some(2),
    41 DescribeDelegationToken Some(2),
    42 DeleteGroups Some(2),
    43 ElectLeaders Some(2),
    44 IncrementalAlterConfigs Some(1),
    45 AlterPartitionReassignments Some(0),
    46 ListPartitionReassignments Some(0),
    47 OffsetDelete None,
    48 DescribeClientQuotas Some(1),
    49 AlterClientQuotas Some(1),
    50 DescribeUserScramCredentials Some(0),
    51 AlterUserScramCredentials Some(0),
    52 Vote Some(0),
    53 BeginQuorumEpoch Some(1),
    54 EndQuorumEpoch Some(1),
    55 DescribeQuorum Some(0),
    56 AlterPartition Some(2),
    57 UpdateFeatures Some(0),
    58 Envelope Some(0),
    59 FetchSnapshot Some(0),
    60 DescribeCluster Some(0),
    61 DescribeProducers Some(0),
    62 BrokerRegistration Some(0),
    63 BrokerHeartbeat Some(0),
    64 UnregisterBroker Some(0),
    65 DescribeTransactions Some(0),
    66 ListTransactions Some(0),
    67 AllocateProducerIds Some(0),
    68 ConsumerGroupHeartbeat Some(0),
    69 ConsumerGroupDescribe Some(0),
    70 ControllerRegistration Some(0),
    71 GetTelemetrySubscriptions Some(0),
    72 PushTelemetry Some(0),
    73 AssignReplicasToDirs Some(0),
    74 ListConfigResources Some(0),
    75 DescribeTopicPartitions Some(0),
    76 ShareGroupHeartbeat Some(1),
    77 ShareGroupDescribe Some(1),
    78 ShareFetch Some(1),
    79 ShareAcknowledge Some(1),
    80 AddRaftVoter Some(0),
    81 RemoveRaftVoter Some(0),
    82 UpdateRaftVoter Some(0),
    83 InitializeShareGroupState Some(0),
    84 ReadShareGroupState Some(0),
    85 WriteShareGroupState Some(0),
    86 DeleteShareGroupState Some(0),
    87 ReadShareGroupStateSummary Some(0),
    88 StreamsGroupHeartbeat Some(0),
    89 StreamsGroupDescribe Some(0),
    90 DescribeShareGroupOffsets Some(0),
    91 AlterShareGroupOffsets Some(0),
    92 DeleteShareGroupOffsets Some(0),
}

impl ApiKey {
    /// Is `version` of this API flexible?
    #[must_use]
    pub fn is_flexible(self, version: i16) -> bool {
        self.first_flexible().is_some_and(|first| version >= first)
    }

    /// Version of the request header before a request of `version`: 1 or 2.
    #[must_use]
    pub fn request_header_version(self, version: i16) -> i16 {
        if self.is_flexible(version) { 2 } else { 1 }
    }

    /// Version of the response header before a response of `version`: 0 or 1. ApiVersions always
    /// has 0, so that a client can read the answer before it knows the broker (KIP-511).
    #[must_use]
    pub fn response_header_version(self, version: i16) -> i16 {
        i16::from(self != ApiKey::ApiVersions && self.is_flexible(version))
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
