//! The syntax of Java's property files, in which `server.properties` and `meta.properties` are
//! written.
//!
//! A line is a comment when its first character is `#` or `!`. The key ends at the first `=`, `:` or
//! white space that no backslash precedes. A backslash before the end of a line joins the next one
//! to it; before `t`, `n`, `r`, `f` it makes that control character, before `u` and four hexadecimal
//! digits a UTF-16 unit, before anything else that character itself.

/// One entry, as it stands in the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileEntry {
    /// Where it begins, from 1.
    pub line: usize,
    /// Its key; empty when the line begins with `=` or `:`.
    pub key: String,
    /// Its value, white space at its end included.
    pub value: String,
}

/// A `\u` that four hexadecimal digits do not follow, or that is half of a surrogate pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadEscape {
    /// Line of the entry, from 1.
    pub line: usize,
}

/// Every entry in the order of the file, also those whose key comes again, and every line that can
/// not be read. Bytes that are not UTF-8 are taken as ISO-8859-1, which is what Java takes them for.
#[must_use]
pub fn parse_properties(bytes: &[u8]) -> Vec<Result<FileEntry, BadEscape>> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text).to_owned(),
        Err(_) => bytes.iter().copied().map(char::from).collect(),
    };
    logical_lines(&text)
        .into_iter()
        .map(|(line, text)| entry(line, &text))
        .collect()
}

/// Lines with their continuations joined, without comments and blank lines.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let unified = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (i, natural) in unified.split('\n').enumerate() {
        let natural = natural.trim_start_matches(is_space);
        if !continues && (natural.is_empty() || natural.starts_with(['#', '!'])) {
            continue;
        }
        let backslashes = natural.len() - natural.trim_end_matches('\\').len();
        let joins_next = backslashes % 2 == 1;
        let part = match joins_next {
            true => &natural[..natural.len() - 1],
            false => natural,
        };
        match lines.last_mut() {
            Some((_, whole)) if continues => whole.push_str(part),
            Some(_) | None => lines.push((i + 1, part.to_owned())),
        }
        continues = joins_next;
    }
    lines
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\u{c}')
}

fn entry(line: usize, text: &str) -> Result<FileEntry, BadEscape> {
    let mut escaped = false;
    let key_end = text
        .char_indices()
        .find(|(_, c)| {
            let ends = !escaped && (is_space(*c) || matches!(c, '=' | ':'));
            escaped = !escaped && *c == '\\';
            ends
        })
        .map_or(text.len(), |(at, _)| at);
    let (key, rest) = text.split_at(key_end);
    let rest = rest.trim_start_matches(is_space);
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    Ok(FileEntry {
        line,
        key: unescaped(line, key)?,
        value: unescaped(line, value.trim_start_matches(is_space))?,
    })
}

fn unescaped(line: usize, text: &str) -> Result<String, BadEscape> {
    let bad = BadEscape { line };
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let meant = match (c, if c == '\\' { chars.next() } else { Some(c) }) {
            ('\\', Some('u')) => {
                units.push(utf16_unit(&mut chars).ok_or(bad)?);
                continue;
            }
            ('\\', Some('t')) => '\t',
            ('\\', Some('n')) => '\n',
            ('\\', Some('r')) => '\r',
            ('\\', Some('f')) => '\u{c}',
            (_, Some(itself)) => itself,
            (_, None) => continue,
        };
        units.extend_from_slice(meant.encode_utf16(&mut [0; 2]));
    }
    String::from_utf16(&units).map_err(|_| bad)
}

/// The number of four hexadecimal digits.
fn utf16_unit(chars: &mut std::str::Chars<'_>) -> Option<u16> {
    let mut unit = 0;
    for _ in 0..4 {
        unit = unit * 16 + chars.next()?.to_digit(16)?;
    }
    u16::try_from(unit).ok()
}

#[cfg(test)]
mod tests {
    use super::{BadEscape, parse_properties};

    fn read(text: &[u8]) -> Vec<(usize, String, String)> {
        let entries = parse_properties(text).into_iter();
        entries
            .map(|entry| entry.expect("readable"))
            .map(|entry| (entry.line, entry.key, entry.value))
            .collect()
    }

    fn pairs(text: &str) -> Vec<(String, String)> {
        let entries = read(text.as_bytes()).into_iter();
        entries.map(|(_, key, value)| (key, value)).collect()
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn separators_comments_and_white_space() {
        let text = "# c\n  ! c\n\n \t\na=1\nb : 2\nc\t3 \n d = = 4\ne\n:f\ng:=h\n";
        assert_eq!(
            pairs(text),
            [
                pair("a", "1"),
                pair("b", "2"),
                pair("c", "3 "),
                pair("d", "= 4"),
                pair("e", ""),
                pair("", "f"),
                pair("g", "=h"),
            ]
        );
    }

    #[test]
    fn lines_go_on_after_a_backslash_and_are_counted() {
        let text = b"a=1,\\\r\n   2,\\\n # no comment\nb=x\\\\\nc=\\\n\nlast=\\";
        let wanted = [
            (1, "a", "1,2,# no comment"),
            (4, "b", "x\\"),
            (5, "c", ""),
            (7, "last", ""),
        ];
        let wanted = wanted.map(|(line, key, value)| (line, key.to_owned(), value.to_owned()));
        assert_eq!(read(text), wanted);
    }

    #[test]
    fn escapes() {
        assert_eq!(
            pairs("a\\ b\\:\\=c=\\t\\u00e9\\q\\\\\nd=\\ud83d\\ude00\nf=C:\\\\temp\n"),
            [
                pair("a b:=c", "\t\u{e9}q\\"),
                pair("d", "\u{1f600}"),
                pair("f", "C:\\temp"),
            ]
        );
        for bad in ["x=\\u12", "x=\\u12g4", "x=\\ud83d", "\\u"] {
            let text = format!("\n{bad}\n");
            let read = parse_properties(text.as_bytes());
            assert_eq!(read, [Err(BadEscape { line: 2 })], "{bad}");
        }
    }

    #[test]
    fn utf_8_and_latin_1_are_both_read() {
        assert_eq!(pairs("\u{feff}r=Z\u{fc}rich"), [pair("r", "Z\u{fc}rich")]);
        let latin = read(b"r=Z\xfcrich");
        assert_eq!(latin[0].2, "Z\u{fc}rich");
        assert!(read(b"").is_empty());
    }
}
