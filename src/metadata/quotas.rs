//! Questions about client quotas (KIP-546).

use std::collections::BTreeSet;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::DescribeClientQuotasRequest;
use thalweg_types::shown;

use crate::controller::TopicRefusal;

/// Kafka's numbers of how an entity is matched: by name, as the default, any.
const MATCH_TYPES: std::ops::RangeInclusive<i8> = 0..=2;

/// Checks what a DescribeClientQuotas request asks for.
///
/// # Errors
/// What is wrong with its filter, as Kafka says it.
pub fn check_quota_filter(request: &DescribeClientQuotasRequest) -> Result<(), TopicRefusal> {
    let refuse = |code, text: String| Err(TopicRefusal::new(code, text));
    let mut seen = BTreeSet::new();
    for component in &request.components {
        let kind = component.entity_type.as_str();
        match kind {
            "user" | "client-id" | "ip" => {}
            "" => {
                let text = "Unexpected empty filter component entity type";
                return refuse(ErrorCode::InvalidRequest, text.to_owned());
            }
            other => {
                let text = format!("Custom entity type '{}' not supported", shown(other));
                return refuse(ErrorCode::UnsupportedVersion, text);
            }
        }
        if !MATCH_TYPES.contains(&component.match_type) {
            let text = format!("Unexpected match type: {}", component.match_type);
            return refuse(ErrorCode::InvalidRequest, text);
        }
        if !seen.insert(kind) {
            let text = format!("Duplicate filter component entity type: {kind}");
            return refuse(ErrorCode::InvalidRequest, text);
        }
    }
    if seen.contains("ip") && seen.len() > 1 {
        let text = "Invalid entity filter component combination, IP filter component should not be \
                    used with user or clientId filter component.";
        return refuse(ErrorCode::InvalidRequest, text.to_owned());
    }
    Ok(())
}
