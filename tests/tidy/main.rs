//! The rules of the house that a compiler does not check. Each test prints every offender.

mod api_table;
mod contents;
mod edges;
mod rules;
mod scripts;
mod source;
mod symbols;

/// Fails with all offenders at once, so that one run shows the whole list.
fn assert_none(what: &str, offenders: &[String]) {
    assert!(
        offenders.is_empty(),
        "{what}:\n  {}",
        offenders.join("\n  ")
    );
}
