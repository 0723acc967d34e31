//! Subscriptions by regular expression. RE2's syntax, which Kafka's clients write in, and the linear
//! time of its kind of engine; the whole name must match.

use std::rc::Rc;

use regex::{Regex, RegexBuilder};
use thalweg_protocol::ErrorCode;
use thalweg_types::limits::{SUBSCRIPTION_REGEX_BYTES_MAX, SUBSCRIPTION_REGEX_COMPILED_BYTES_MAX};

use super::Refusal;
use crate::topics::Topics;

/// Reads a regular expression.
pub(crate) fn compile(pattern: &str) -> Result<Regex, Refusal> {
    let refuse = |what: String| {
        let message = format!("SubscribedTopicRegex is not one that can be used: {what}");
        Refusal::new(ErrorCode::InvalidRegularExpression, message)
    };
    if pattern.len() > SUBSCRIPTION_REGEX_BYTES_MAX {
        let max = SUBSCRIPTION_REGEX_BYTES_MAX;
        return Err(refuse(format!("it is longer than {max} bytes")));
    }
    let build = |pattern: &str| {
        RegexBuilder::new(pattern)
            .size_limit(SUBSCRIPTION_REGEX_COMPILED_BYTES_MAX)
            .dfa_size_limit(SUBSCRIPTION_REGEX_COMPILED_BYTES_MAX)
            .build()
            .map_err(|error| refuse(error.to_string()))
    };
    let pattern = unquoted(pattern);
    // By itself first: it must not close the group that is put around it.
    build(&pattern)?;
    build(&format!("^(?:{pattern})$"))
}

/// Names that match, sorted.
pub(crate) fn resolve(pattern: &Regex, topics: &Topics) -> Rc<[Rc<str>]> {
    let names = topics.names().into_iter();
    names
        .filter(|name| pattern.is_match(name))
        .map(|name| Rc::from(&*name))
        .collect()
}

/// RE2 has `\Q...\E` for literal text, our engine has not.
fn unquoted(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        if let Some(quoted) = escape.strip_prefix("\\Q") {
            let (literal, after) = quoted.split_once("\\E").unwrap_or((quoted, ""));
            out.push_str(&regex::escape(literal));
            rest = after;
            continue;
        }
        // Both characters, so that a quoted backslash does not begin an escape.
        let len = 1 + escape[1..].chars().next().map_or(0, char::len_utf8);
        out.push_str(&escape[..len]);
        rest = &escape[len..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::{compile, unquoted};

    #[test]
    fn the_whole_name_must_match() {
        for (pattern, name, matches) in [
            ("a.*", "abc", true),
            ("a", "abc", false),
            ("a|bc", "bcd", false),
            ("(?i)ABC", "abc", true),
            ("\\Qa.c\\E", "abc", false),
            ("\\Qa.c\\E", "a.c", true),
            ("\\Qa.\\E.", "a.c", true),
            ("\\d+", "12", true),
            ("[[:alpha:]]+", "ab", true),
            ("", "", true),
        ] {
            let compiled = compile(pattern).expect(pattern);
            assert_eq!(compiled.is_match(name), matches, "{pattern} on {name}");
        }
    }

    #[test]
    fn what_is_no_pattern_or_too_large_is_refused() {
        for pattern in ["(", "a{1000}{1000}{1000}", "(?=a)", "\\1", "a)(?:b"] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
        assert!(compile(&"a".repeat(100_000)).is_err());
    }

    #[test]
    fn escapes_are_read_in_pairs() {
        assert_eq!(unquoted("\\\\Qa"), "\\\\Qa");
        assert_eq!(unquoted("\\Qa.b"), "a\\.b");
        assert_eq!(unquoted("x\\"), "x\\");
        assert_eq!(unquoted("\\\u{e9}"), "\\\u{e9}");
    }
}
