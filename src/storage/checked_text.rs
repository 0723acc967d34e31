//! Text files of ours that count only undamaged: a line with the CRC-32C of all that follows, in 8
//! hexadecimal digits, then the text.

/// The file that has `text`.
pub(crate) fn seal(text: &str) -> String {
    format!("{:08x}\n{text}", crc32c::crc32c(text.as_bytes()))
}

/// The text that was sealed; `None` when the file is damaged.
pub(crate) fn unseal(file: &[u8]) -> Option<&str> {
    let (crc, text) = std::str::from_utf8(file).ok()?.split_once('\n')?;
    (crc == format!("{:08x}", crc32c::crc32c(text.as_bytes()))).then_some(text)
}
