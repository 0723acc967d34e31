//! ApiVersions (KIP-35, KIP-511): what this broker speaks.

use std::rc::Rc;

use thalweg_metadata::controller::METADATA_VERSION_FEATURE;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::api_versions_response::{
    ApiVersion, FinalizedFeatureKey, SupportedFeatureKey,
};
use thalweg_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};

use super::API_TABLE;
use crate::service::Call;
use crate::shard::Shard;

/// The feature that says whether groups of the newer protocol exist (KIP-848).
pub(super) const FEATURE_GROUPS: &str = "group.version";
/// Its level: they do.
pub(super) const FEATURE_GROUPS_LEVEL: i16 = 1;

/// First version whose answer may name a feature that can be at level 0.
const VERSION_LEVEL_ZERO: i16 = 4;

/// Features are as this release has them, so their epoch never changes.
const FEATURES_EPOCH: i64 = 1;

/// Longest client software name or version that is kept.
const SOFTWARE_BYTES_MAX: usize = 256;

/// Answers a version that the broker serves, and notes who the client is.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: ApiVersionsRequest,
) -> ApiVersionsResponse {
    let metadata = shard.view().image.feature(METADATA_VERSION_FEATURE);
    let response = decide(&request, call.version, metadata);
    if call.version >= 3 && response.error_code == 0 {
        call.conn.set_software(
            &request.client_software_name,
            &request.client_software_version,
        );
    }
    response
}

/// `metadata` is the level of `metadata.version`: tools take it for the release of Kafka that they talk to.
fn decide(request: &ApiVersionsRequest, version: i16, metadata: i16) -> ApiVersionsResponse {
    let named = version < 3
        || (is_software_word(&request.client_software_name)
            && is_software_word(&request.client_software_version));
    if !named {
        return ApiVersionsResponse {
            error_code: ErrorCode::InvalidRequest.code(),
            ..Default::default()
        };
    }
    ApiVersionsResponse {
        api_keys: table(),
        supported_features: supported_features(version, metadata),
        finalized_features_epoch: FEATURES_EPOCH,
        finalized_features: [
            (FEATURE_GROUPS, FEATURE_GROUPS_LEVEL),
            (METADATA_VERSION_FEATURE, metadata),
        ]
        .map(|(name, level)| FinalizedFeatureKey {
            name: name.to_owned(),
            max_version_level: level,
            min_version_level: level,
        })
        .into(),
        ..Default::default()
    }
}

/// What can be switched, as far as the version can tell of it: Java's clients before 3.9 take a smallest level of 0
/// for a broken answer and give the connection up (KAFKA-17011), so that before version 4 it is left out
/// (KAFKA-17492).
fn supported_features(version: i16, metadata: i16) -> Vec<SupportedFeatureKey> {
    let features = [
        (FEATURE_GROUPS, 0, FEATURE_GROUPS_LEVEL),
        (METADATA_VERSION_FEATURE, metadata, metadata),
    ];
    let told = features
        .into_iter()
        .filter(|(_, least, _)| *least > 0 || version >= VERSION_LEVEL_ZERO);
    told.map(|(name, min_version, max_version)| SupportedFeatureKey {
        name: name.to_owned(),
        min_version,
        max_version,
    })
    .collect()
}

/// Answers a version that the broker does not know, in version 0 (KIP-511): the client learns the
/// range and asks again.
pub(crate) fn answer_unsupported() -> ApiVersionsResponse {
    ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion.code(),
        api_keys: table(),
        ..Default::default()
    }
}

fn table() -> Vec<ApiVersion> {
    API_TABLE
        .iter()
        .map(|row| ApiVersion {
            api_key: row.key as i16,
            min_version: row.min,
            max_version: row.max,
        })
        .collect()
}

/// KIP-511: letters, digits, `-` and `.`, beginning and ending with a letter or digit.
fn is_software_word(word: &str) -> bool {
    let bytes = word.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    bytes.len() <= SOFTWARE_BYTES_MAX
        && first.is_ascii_alphanumeric()
        && last.is_ascii_alphanumeric()
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || *b == b'-' || *b == b'.')
}

#[cfg(test)]
mod tests {
    use super::{answer_unsupported, decide};
    use thalweg_protocol::ErrorCode;
    use thalweg_protocol::messages::ApiVersionsRequest;

    const LEVEL: i16 = 27;

    fn named(name: &str, version: &str) -> ApiVersionsRequest {
        ApiVersionsRequest {
            client_software_name: name.to_owned(),
            client_software_version: version.to_owned(),
        }
    }

    #[test]
    fn bi_6_software_names_follow_kip_511() {
        for (name, version, ok) in [
            ("apache-kafka-java", "4.3.1", true),
            ("a", "1", true),
            ("", "1", false),
            ("a b", "1", false),
            ("-a", "1", false),
            ("a", "1.", false),
            ("caf\u{e9}", "1", false),
        ] {
            let error = decide(&named(name, version), 3, LEVEL).error_code;
            assert_eq!(error == 0, ok, "{name:?} {version:?}");
        }
        // Before version 3 the fields are not on the wire.
        assert_eq!(decide(&named("", ""), 2, LEVEL).error_code, 0);
    }

    #[test]
    fn no_feature_of_level_zero_is_named_before_version_4() {
        let least = |version| {
            let features = decide(&named("apache-kafka-java", "3.7.1"), version, LEVEL);
            let least = features.supported_features.iter().map(|f| f.min_version);
            least.min()
        };
        assert_eq!((least(3), least(4)), (Some(LEVEL), Some(0)));
        let finalized = decide(&named("apache-kafka-java", "3.7.1"), 3, LEVEL).finalized_features;
        let level = |name| {
            let found = finalized.iter().find(|feature| feature.name == name);
            found.map(|feature| feature.max_version_level)
        };
        assert_eq!(level("group.version"), Some(1));
        assert_eq!(level("metadata.version"), Some(LEVEL));
    }

    #[test]
    fn bi_6_an_unknown_version_learns_the_range() {
        let answer = answer_unsupported();
        assert_eq!(answer.error_code, ErrorCode::UnsupportedVersion as i16);
        assert!(
            answer
                .api_keys
                .iter()
                .any(|row| row.api_key == 18 && row.max_version == 4)
        );
    }
}
