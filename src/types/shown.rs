//! Text from outside in messages.

/// Characters that a message repeats of one text.
const SHOWN_CHARS_MAX: usize = 200;

/// Text from outside as a message may repeat it: control characters escaped (no forged log lines),
/// and cut (a message is no echo of a large value).
pub fn shown(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(SHOWN_CHARS_MAX)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(SHOWN_CHARS_MAX).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn repeated_text_is_escaped_and_cut() {
        assert_eq!(shown("a\nb"), "a\\nb");
        assert_eq!(shown(&"x".repeat(1_000)).len(), 203);
    }
}
