//! The reference of all properties, as Markdown.

use std::fmt::Write as _;

use crate::kafka_keys::{KAFKA_KEYS, KafkaKeys};
use crate::property::{Property, Scope, Status, Visibility, properties};

const HEAD: &str = "\
# Configuration

<!-- Written from the registry in `src/config` by its test; do not edit. After a change there:
     UPDATE_DOCS=1 cargo test -p thalweg-config -->

Broker properties are set in a file, `thalweg serve --config FILE`, with the syntax and names of Kafka's
`server.properties`, and by `--set key=value`, which wins over the file. Topic properties are set when a topic is created
and take their default from the broker property named beside them, and so do properties of groups. Names and defaults
are those of Kafka 4.3, unless the line says what Kafka's is; those that begin with `thalweg.` are our own.

*Effect*: **yes**; **not yet** = checked and kept, and without effect until the feature exists;
**none** = accepted so that existing configurations load. **live** = a running broker takes a new
value by IncrementalAlterConfigs (Kafka's `ConfigCommand`), for itself or for all brokers; properties of topics
and groups always can be changed so.

A name that looks like a slip of a known one is an error, and so is a value that is not allowed; the
messages give file and line. Every other name that is not known here is left out with a warning.
";

const LOG_LEVELS: &str = "
## Log levels

Levels change while the broker runs, and last until it ends, through Kafka's broker loggers:
`kafka-configs.sh --bootstrap-server HOST:PORT --entity-type broker-loggers --entity-name ID`, then
`--describe`, `--alter --add-config thalweg_storage=DEBUG` or `--alter --delete-config thalweg_storage`.
Loggers are `root` and the rooms that log, such as `thalweg_net`; one whose level is deleted has that of
`root` again. Levels are Kafka's: TRACE, DEBUG, INFO, WARN, ERROR, FATAL, where FATAL shows errors too.
";

const OTHERS: &str = "
## Other properties of Kafka

They are accepted, so that existing files load, and each gives one warning at start. Their values are
not looked at.
";

/// The text of `docs/config.md`.
#[must_use]
pub fn render_markdown() -> String {
    let mut out = String::from(HEAD);
    out.push_str("\n## Topic properties\n\n");
    with_defaults(&mut out, Scope::Topic);
    out.push_str("\n## Group properties\n\n");
    with_defaults(&mut out, Scope::Group);
    out.push_str("\n## Broker properties\n\n");
    out.push_str("| name | type | default | allowed | effect | |\n");
    out.push_str("|---|---|---|---|---|---|\n");
    for property in listed(Scope::Broker) {
        line(&mut out, property, None);
    }
    out.push_str(LOG_LEVELS);
    out.push_str(OTHERS);
    for keys in KAFKA_KEYS {
        others(&mut out, keys);
    }
    out
}

/// A table of properties whose defaults brokers give.
fn with_defaults(out: &mut String, scope: Scope) {
    out.push_str("| name | type | default | allowed | broker default | effect | |\n");
    out.push_str("|---|---|---|---|---|---|---|\n");
    for property in listed(scope) {
        let synonyms: Vec<String> = property
            .synonyms
            .iter()
            .map(|s| format!("`{}`", s.name))
            .collect();
        let broker_default = synonyms.join(", ");
        line(out, property, Some(&broker_default));
    }
}

fn others(out: &mut String, keys: &KafkaKeys) {
    let effect = effect(keys.status);
    let quoted = |name: &str| format!("`{name}`");
    let names = keys.names.iter().map(|name| quoted(name));
    let families = keys.prefixes.iter().map(|p| quoted(&format!("{p}*")));
    let names: Vec<String> = names.chain(families).collect();
    // Writing to a String can not fail.
    let _ = writeln!(
        out,
        "\n**{}** ({effect}). {}\n\n{}",
        keys.title,
        keys.why,
        names.join(", ")
    );
}

fn effect(status: Status) -> &'static str {
    match status {
        Status::Active => "yes",
        Status::NotYet => "not yet",
        Status::NoMeaning => "none",
    }
}

fn listed(scope: Scope) -> impl Iterator<Item = &'static Property> {
    properties(scope)
        .iter()
        .filter(|property| property.visibility == Visibility::Public)
}

fn line(out: &mut String, property: &Property, broker_default: Option<&str>) {
    let default = match property.default {
        None => "not set".to_string(),
        Some("") => "empty".to_string(),
        Some(text) => format!("`{text}`"),
    };
    let effect = effect(property.status);
    let live = if property.is_dynamic() { ", live" } else { "" };
    let synonyms = broker_default.map_or_else(String::new, |names| format!(" {names} |"));
    // Writing to a String can not fail.
    let _ = writeln!(
        out,
        "| `{}` | {} | {default} | {} |{synonyms} {effect}{live} | {} |",
        property.name,
        property.kind.type_name(),
        property.kind.allowed().replace('*', "\\*"),
        property.doc,
    );
}

#[cfg(test)]
mod tests {
    use super::render_markdown;

    #[test]
    fn docs_config_md_is_what_the_registry_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.md");
        let text = render_markdown();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &text).expect("docs/config.md can be written");
        }
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            found == text,
            "docs/config.md is out of date: run with UPDATE_DOCS=1"
        );
    }
}
