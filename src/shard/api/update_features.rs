//! UpdateFeatures (KIP-584): features are as this release has them, so that an update to the level of now does nothing and any
//! other is refused. One refusal refuses the whole request, as Kafka's controller does.

use std::rc::Rc;

use thalweg_metadata::controller::METADATA_VERSION_FEATURE;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::update_features_request::FeatureUpdateKey;
use thalweg_protocol::messages::update_features_response::UpdatableFeatureResult;
use thalweg_protocol::messages::{UpdateFeaturesRequest, UpdateFeaturesResponse};
use thalweg_types::shown;

use super::api_versions::{FEATURE_GROUPS, FEATURE_GROUPS_LEVEL};
use crate::service::Call;
use crate::shard::Shard;

/// Answers at once: nothing changes.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: UpdateFeaturesRequest,
) -> UpdateFeaturesResponse {
    let metadata = shard.view().image.feature(METADATA_VERSION_FEATURE);
    let refused = |update| refusal(update, metadata);
    let refusal = request.feature_updates.iter().find_map(refused);
    if let Some(text) = refusal {
        let error = ErrorCode::InvalidUpdateVersion.code();
        shard.count_error(call.key, error);
        return UpdateFeaturesResponse {
            error_code: error,
            error_message: Some(format!("nothing was updated: {text}")),
            ..Default::default()
        };
    }
    let result = |update: FeatureUpdateKey| UpdatableFeatureResult {
        feature: update.feature,
        error_message: None,
        ..Default::default()
    };
    UpdateFeaturesResponse {
        error_message: None,
        results: request.feature_updates.into_iter().map(result).collect(),
        ..Default::default()
    }
}

/// Why an update can not be, if it can not; `metadata` is the level of `metadata.version`.
fn refusal(update: &FeatureUpdateKey, metadata: i16) -> Option<String> {
    let FeatureUpdateKey {
        feature,
        max_version_level: level,
        ..
    } = update;
    let now = match feature.as_str() {
        FEATURE_GROUPS => FEATURE_GROUPS_LEVEL,
        METADATA_VERSION_FEATURE => metadata,
        _other => return Some(format!("this release has no feature {}", shown(feature))),
    };
    (*level != now).then(|| format!("{feature} is {now} in this release and can not be {level}"))
}

#[cfg(test)]
mod tests {
    use thalweg_protocol::messages::update_features_request::FeatureUpdateKey;

    use super::refusal;

    #[test]
    fn a_feature_stays_at_its_level() {
        let judged = |feature: &str, level| {
            let update = FeatureUpdateKey {
                feature: feature.to_owned(),
                max_version_level: level,
                ..Default::default()
            };
            let refused = refusal(&update, 27);
            assert!(refused.as_ref().is_none_or(|text| text.len() < 1_000));
            refused.is_none()
        };
        assert!(judged("group.version", 1));
        assert!(judged("metadata.version", 27));
        let long = "x".repeat(32_767);
        for (feature, level) in [
            (long.as_str(), 1),
            ("group.version", 0),
            ("group.version", 2),
            ("metadata.version", 1),
            ("no.feature", 1),
        ] {
            assert!(!judged(feature, level), "{level}");
        }
    }
}
