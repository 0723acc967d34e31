//! Which versions a broker speaks, and which of them we use.

use std::collections::BTreeMap;

use thalweg_protocol::messages::ApiVersionsResponse;
use thalweg_protocol::{ApiKey, Request};

/// Version ranges of one broker, from its ApiVersions answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiTable {
    ranges: BTreeMap<i16, (i16, i16)>,
}

impl ApiTable {
    pub(crate) fn of(response: &ApiVersionsResponse) -> ApiTable {
        let row = |k: &thalweg_protocol::messages::api_versions_response::ApiVersion| {
            (k.api_key, (k.min_version, k.max_version))
        };
        ApiTable {
            ranges: response.api_keys.iter().map(row).collect(),
        }
    }

    /// The broker's range for an API.
    #[must_use]
    pub fn range(&self, key: ApiKey) -> Option<(i16, i16)> {
        self.ranges.get(&(key as i16)).copied()
    }

    /// All rows as (API key, lowest, highest), by key.
    pub fn rows(&self) -> impl Iterator<Item = (i16, i16, i16)> + '_ {
        self.ranges
            .iter()
            .map(|(key, (low, high))| (*key, *low, *high))
    }

    /// Newest version that both sides know.
    #[must_use]
    pub fn newest<R: Request>(&self) -> Option<i16> {
        self.newest_up_to::<R>(i16::MAX)
    }

    /// Newest common version that is not above `limit`.
    #[must_use]
    pub fn newest_up_to<R: Request>(&self, limit: i16) -> Option<i16> {
        let (low, high) = self.range(R::KEY)?;
        let best = high.min(*R::VERSIONS.end()).min(limit);
        (best >= low && best >= *R::VERSIONS.start()).then_some(best)
    }
}

#[cfg(test)]
mod tests {
    use thalweg_protocol::messages::{
        ApiVersionsResponse, FetchRequest, MetadataRequest, ProduceRequest,
        api_versions_response::ApiVersion,
    };

    use super::ApiTable;

    #[test]
    fn the_newest_common_version_is_used() {
        let row = |api_key, min_version, max_version| ApiVersion {
            api_key,
            min_version,
            max_version,
        };
        let api_keys = vec![row(0, 0, 9), row(1, 30, 40)];
        let table = ApiTable::of(&ApiVersionsResponse {
            api_keys,
            ..Default::default()
        });
        assert_eq!(table.newest::<ProduceRequest>(), Some(9));
        assert_eq!(table.newest_up_to::<ProduceRequest>(7), Some(7));
        assert_eq!(table.newest_up_to::<ProduceRequest>(2), None);
        assert_eq!(table.newest::<FetchRequest>(), None);
        assert_eq!(table.newest::<MetadataRequest>(), None);
    }
}
