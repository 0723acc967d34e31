//! Bytes that are no text, in JSON (RFC 4648, section 4).

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// With padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let six = (bits >> (18 - 6 * i)) & 0x3f;
            out.push(if i <= chunk.len() {
                char::from(ALPHABET[six as usize])
            } else {
                '='
            });
        }
    }
    out
}

/// `None` when `text` is not what [`encode`] makes.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in text.as_bytes().chunks(4) {
        let mut bits = 0;
        let digits = chunk.iter().take_while(|c| **c != b'=').count();
        for at in 0..4 {
            let value = match chunk.get(at)? {
                b'=' if at >= digits.max(2) => 0,
                c => ALPHABET.iter().position(|a| a == c)? as u32,
            };
            bits = bits << 6 | value;
        }
        let bytes = [(bits >> 16) as u8, (bits >> 8) as u8, bits as u8];
        out.extend_from_slice(&bytes[..digits - 1]);
    }
    // Padding stands at the end, and the bits under it are zero.
    (encode(&out) == text).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn base64_of_each_remainder() {
        let known: [(&[u8], &str); 5] = [
            (b"", ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (&[0xff, 0xfe], "//4="),
        ];
        for (bytes, text) in known {
            assert_eq!(encode(bytes), text);
            assert_eq!(decode(text).as_deref(), Some(bytes));
        }
    }

    #[test]
    fn what_is_no_base64() {
        for bad in [
            "Z", "Zg", "Zg=", "Zg==Zg==", "Zh==", "Z===", "====", "Zm9v\n", "é===",
        ] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
