//! Kafka's 128-bit ids and their text form.

use std::fmt;
use std::str::FromStr;

/// A 128-bit id as Kafka writes it: 16 bytes on the wire, 22 characters of unpadded URL-safe base64
/// in text (`partition.metadata`, `meta.properties`, tool output).
///
/// The all-zero id means "none" on the wire ([`Uuid::ZERO`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Uuid(pub [u8; 16]);

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const TEXT_LEN: usize = 22;

impl Uuid {
    /// "No id" on the wire.
    pub const ZERO: Uuid = Uuid([0; 16]);

    /// True for the id that means "none".
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    /// Shapes 16 random bytes into a version-4 id, the kind Kafka gives to topics, clusters and
    /// directories. Kafka avoids ids whose text begins with `-` (they read as options); the caller
    /// draws again when [`Uuid::reads_as_option`] says so.
    #[must_use]
    pub fn from_random(mut bytes: [u8; 16]) -> Self {
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Uuid(bytes)
    }

    /// True when the text form begins with `-`.
    #[must_use]
    pub fn reads_as_option(&self) -> bool {
        ALPHABET[usize::from(self.0[0] >> 2)] == b'-'
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0u8; TEXT_LEN];
        let value = u128::from_be_bytes(self.0);
        for (i, slot) in text.iter_mut().enumerate() {
            // 22 characters carry 132 bits: the id's 128, then 4 zero bits.
            let six = if i + 1 < TEXT_LEN {
                value >> (122 - 6 * i)
            } else {
                value << 4
            } & 0x3f;
            *slot = ALPHABET[six as usize];
        }
        f.write_str(std::str::from_utf8(&text).expect("the alphabet is ASCII"))
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not 22 characters of URL-safe base64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UuidParseError;

impl fmt::Display for UuidParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id is 22 characters of URL-safe base64, for example AAAAAAAAQACAAAAAAAAAAA")
    }
}

impl std::error::Error for UuidParseError {}

impl FromStr for Uuid {
    type Err = UuidParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() != TEXT_LEN {
            return Err(UuidParseError);
        }
        let mut value = 0u128;
        for (i, c) in text.bytes().enumerate() {
            let six = ALPHABET
                .iter()
                .position(|a| *a == c)
                .ok_or(UuidParseError)? as u128;
            if i + 1 < TEXT_LEN {
                value = (value << 6) | six;
            } else if six & 0xf != 0 {
                return Err(UuidParseError);
            } else {
                value = (value << 2) | (six >> 4);
            }
        }
        Ok(Uuid(value.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::Uuid;

    #[test]
    fn text_form_matches_kafka() {
        // The id of the metadata topic, as Kafka's tools print it.
        let mut bytes = [0u8; 16];
        bytes[15] = 1;
        assert_eq!(Uuid(bytes).to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
    }

    #[test]
    fn text_form_round_trips() {
        let mut state = 7u64;
        for _ in 0..1_000 {
            let mut bytes = [0u8; 16];
            for b in &mut bytes {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                *b = (state >> 33) as u8;
            }
            let id = Uuid::from_random(bytes);
            assert_eq!(id.to_string().parse(), Ok(id));
        }
    }

    #[test]
    fn bad_text_is_refused() {
        for text in [
            "",
            "AAAA",
            "AAAAAAAAAAAAAAAAAAAAAB",
            "AAAAAAAAAAAAAAAAAAAA+Q",
        ] {
            assert!(text.parse::<Uuid>().is_err(), "{text}");
        }
    }
}
