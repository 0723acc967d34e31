//! The notation's own rules, and that it agrees with the table of API keys.

use thalweg_protocol::ApiKey;
use thalweg_protocol::messages::Codec;

use crate::all_messages;
use crate::model::Kind;
use crate::notation::parse;

#[test]
fn requests_agree_with_the_table_of_keys() {
    for message in all_messages().iter().filter(|m| m.kind == Kind::Request) {
        let key = ApiKey::try_from(message.key.expect("a request has a key")).expect("known");
        assert_eq!(format!("{key}Request"), message.name);
        assert_eq!(key.first_flexible(), message.flexible, "{key}");
        let codec = Codec::named(&message.name).expect("a codec");
        let answer = Codec::named(&format!("{key}Response")).expect("an answer");
        assert_eq!(codec.versions, answer.versions, "{key}");
        assert_eq!(codec.flexible_from, answer.flexible_from, "{key}");
        for version in codec.versions.clone() {
            let flexible = i16::from(key.is_flexible(version));
            assert_eq!(key.request_header_version(version), 1 + flexible);
            let answer = if key == ApiKey::ApiVersions {
                0
            } else {
                flexible
            };
            assert_eq!(key.response_header_version(version), answer);
        }
    }
}

#[test]
fn keys_are_found_by_number_and_by_nothing_else() {
    for key in ApiKey::ALL {
        assert_eq!(ApiKey::try_from(*key as i16), Ok(*key));
    }
    for gone in [-1, 4, 5, 6, 7, 1_000, i16::MIN, i16::MAX] {
        assert!(ApiKey::try_from(gone).is_err());
    }
}

#[test]
fn faults_name_their_line() {
    let head = "request X key 1 versions 0-3 flexible 2+\n";
    for (body, line, what) in [
        ("  a int32 2-1\n", 2, "empty range"),
        ("  a int32\n  b int33\n", 3, "no such type"),
        ("  a int32 4+\n", 2, "empty range"),
        ("  a int32 0-9\n", 2, "outside"),
        ("   a int32\n", 2, "two spaces"),
        ("    a int32\n", 2, "too deep"),
        ("  a int32 maybe\n", 2, "not understood"),
        ("  a []Thing\n", 1, "not defined"),
        ("  a int32\n    b int32\n", 2, "only a struct"),
        (
            "  a Thing\n    b int32\n  struct Thing\n    c int32\n",
            1,
            "twice",
        ),
        ("request Y versions 0 flexible none\n", 2, "have a key"),
        (
            "message Y versions 0 flexible none\n",
            2,
            "expected request",
        ),
        ("data Y versions 0\n", 2, "its flexible versions"),
        ("  a string tag x\n", 2, "not a number"),
        ("  a int32 few\n", 2, "only an array"),
        ("  a []int32 null few\n", 2, "only an array"),
    ] {
        let error = parse(&format!("{head}{body}")).expect_err(body);
        assert!(error.what.contains(what), "{body}: {}", error.what);
        assert_eq!(error.line, line, "{body}");
    }
}
