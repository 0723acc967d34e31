//! The little that the broker reads of a consumer's metadata: which topics it subscribes to.
//!
//! The bytes are the members' own (KIP-62): version, then an array of topic names in the
//! non-flexible form, then what this does not look at.

/// The protocol type of Kafka's consumers.
pub(crate) const CONSUMER: &str = "consumer";

/// Topics of one member; `None` when the bytes are of another form.
pub(crate) fn topics_of(metadata: &[u8]) -> Option<Vec<&str>> {
    let (version, mut rest) = metadata.split_first_chunk::<2>()?;
    if i16::from_be_bytes(*version) < 0 {
        return None;
    }
    let count = take_i32(&mut rest)?;
    let mut topics = Vec::new();
    for _ in 0..count {
        let (len, after) = rest.split_first_chunk::<2>()?;
        let len = usize::try_from(i16::from_be_bytes(*len)).ok()?;
        let (name, after) = after.split_at_checked(len)?;
        topics.push(std::str::from_utf8(name).ok()?);
        rest = after;
    }
    Some(topics)
}

fn take_i32(rest: &mut &[u8]) -> Option<i32> {
    let (bytes, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    Some(i32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::topics_of;

    #[test]
    fn reads_topics_and_refuses_what_is_cut() {
        let bytes = b"\0\x01\0\0\0\x02\0\x01a\0\x02bc\xff\xff\xff\xff";
        assert_eq!(topics_of(bytes), Some(vec!["a", "bc"]));
        assert_eq!(topics_of(&bytes[..8]), None);
        assert_eq!(topics_of(b""), None);
        assert_eq!(topics_of(b"\0\x01\x7f\xff\xff\xff"), None);
        assert_eq!(topics_of(b"\0\x01\xff\xff\xff\xff"), Some(vec![]));
    }
}
