//! What a topic may be called (BI-9).

use thalweg_types::limits::TOPIC_NAME_BYTES_MAX;

/// Topics that the broker keeps for itself; clients see them marked as internal.
const INTERNAL: [&str; 3] = [OFFSETS_TOPIC, "__transaction_state", "__share_group_state"];

/// Topic of the groups and their offsets.
pub const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// Name of the metadata log's directory and topic; no client may create it.
pub const METADATA_TOPIC: &str = "__cluster_metadata";

/// Why a name is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadName {
    /// Nothing.
    #[error("Topic name is invalid: the empty string is not allowed")]
    Empty,
    /// `.` or `..`, which would leave the data directory.
    #[error("Topic name is invalid: '.' or '..' is not allowed")]
    Dots,
    /// Longer than a directory name with its partition may be.
    #[error("Topic name is invalid: it has {0} bytes, at most {TOPIC_NAME_BYTES_MAX} are allowed")]
    TooLong(usize),
    /// Other characters than ASCII letters, digits, `.`, `_`, `-`.
    #[error(
        "Topic name is invalid: it contains characters other than ASCII letters and digits, '.', \
         '_' and '-'"
    )]
    Characters,
}

/// Checks a name by itself.
///
/// # Errors
/// The first rule that it breaks.
pub fn validate(name: &str) -> Result<(), BadName> {
    if name.is_empty() {
        return Err(BadName::Empty);
    }
    if name == "." || name == ".." {
        return Err(BadName::Dots);
    }
    if name.len() > TOPIC_NAME_BYTES_MAX {
        return Err(BadName::TooLong(name.len()));
    }
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    if name.bytes().all(allowed) {
        Ok(())
    } else {
        Err(BadName::Characters)
    }
}

/// True for a topic that the broker keeps for itself.
#[must_use]
pub fn is_internal(name: &str) -> bool {
    INTERNAL.contains(&name)
}

/// The form in which two names must differ: metrics write `.` as `_`. `None` when the name has
/// neither, so that it can collide with no other name.
#[must_use]
pub fn collision_form(name: &str) -> Option<String> {
    name.contains(['.', '_']).then(|| name.replace('.', "_"))
}

#[cfg(test)]
mod tests {
    use super::{BadName, collision_form, is_internal, validate};

    #[test]
    fn bi_9_names() {
        for good in [
            "a",
            "...",
            "a.b_c-D9",
            &"x".repeat(249),
            "__consumer_offsets",
        ] {
            assert_eq!(validate(good), Ok(()), "{good}");
        }
        assert_eq!(validate(""), Err(BadName::Empty));
        assert_eq!(validate("."), Err(BadName::Dots));
        assert_eq!(validate(".."), Err(BadName::Dots));
        assert_eq!(validate(&"x".repeat(250)), Err(BadName::TooLong(250)));
        for bad in [
            "a/b", "../x", "a\0b", "straße", "a b", "a\nb", "a\\b", "a:b",
        ] {
            assert_eq!(validate(bad), Err(BadName::Characters), "{bad:?}");
        }
    }

    #[test]
    fn collisions() {
        assert_eq!(collision_form("a.b"), collision_form("a_b"));
        assert_ne!(collision_form("a.b"), collision_form("a-b"));
        assert_eq!(collision_form("ab"), None);
        assert!(is_internal("__consumer_offsets") && !is_internal("__mine"));
    }
}
