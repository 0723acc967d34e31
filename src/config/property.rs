//! The registry of properties: what each is called, takes and means.

use crate::broker_properties::BROKER_PROPERTIES;
use crate::group::GROUP_PROPERTIES;
use crate::kafka_keys::KAFKA_KEYS;
use crate::topic_properties::TOPIC_PROPERTIES;
use crate::value::Kind;

/// Whose property it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scope {
    /// Set per topic; a broker property of [`Property::synonyms`] gives its default.
    Topic,
    /// Set per broker, at start.
    Broker,
    /// Set per group; a broker property of [`Property::synonyms`] gives its default.
    Group,
}

/// Whether setting the property changes anything yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// It takes effect.
    Active,
    /// It is checked and kept, and takes effect once the feature behind it exists.
    NotYet,
    /// It is checked and kept so that existing configurations load, and has no meaning here.
    NoMeaning,
}

/// Who may see the property.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visibility {
    /// Listed in documents and answers.
    Public,
    /// Accepted, but not listed: meant for tests.
    Internal,
}

/// Factor from a broker property to the topic property whose default it gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// The same unit.
    Same,
    /// Minutes to milliseconds; negative values mean "unlimited" (-1).
    MinutesToMs,
    /// Hours to milliseconds; negative values mean "unlimited" (-1).
    HoursToMs,
}

/// A broker property that gives the default of a topic property.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Synonym {
    /// The broker property's name.
    pub name: &'static str,
    /// How its value translates.
    pub scale: Scale,
}

/// One property of the registry.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Property {
    /// Kafka's name, or `thalweg.*` for one of our own.
    pub name: &'static str,
    /// Whose property it is.
    pub scope: Scope,
    /// Its type and allowed values.
    pub kind: Kind,
    /// Its default in text form, of Kafka 4.3 where Kafka has the property; `None` = not set.
    pub default: Option<&'static str>,
    /// Whether it takes effect yet.
    pub status: Status,
    /// Whether it is listed.
    pub visibility: Visibility,
    /// A broker property that a running broker obeys by itself, not as a default of topics.
    pub live: bool,
    /// For a topic's or group's property: the broker properties that give its default, strongest
    /// first.
    pub synonyms: &'static [Synonym],
    /// What it does, in our own words.
    pub doc: &'static str,
}

impl Property {
    const fn new(
        scope: Scope,
        name: &'static str,
        kind: Kind,
        default: Option<&'static str>,
        doc: &'static str,
    ) -> Property {
        Property {
            name,
            scope,
            kind,
            default,
            status: Status::NotYet,
            visibility: Visibility::Public,
            live: false,
            synonyms: &[],
            doc,
        }
    }

    pub(crate) const fn topic(
        name: &'static str,
        kind: Kind,
        default: &'static str,
        synonyms: &'static [Synonym],
        doc: &'static str,
    ) -> Property {
        let mut property = Property::new(Scope::Topic, name, kind, Some(default), doc);
        property.synonyms = synonyms;
        property
    }

    pub(crate) const fn group(
        name: &'static str,
        kind: Kind,
        default: &'static str,
        synonyms: &'static [Synonym],
        doc: &'static str,
    ) -> Property {
        let mut property = Property::new(Scope::Group, name, kind, Some(default), doc);
        property.synonyms = synonyms;
        property
    }

    pub(crate) const fn broker(
        name: &'static str,
        kind: Kind,
        default: &'static str,
        doc: &'static str,
    ) -> Property {
        Property::new(Scope::Broker, name, kind, Some(default), doc)
    }

    pub(crate) const fn broker_unset(
        name: &'static str,
        kind: Kind,
        doc: &'static str,
    ) -> Property {
        Property::new(Scope::Broker, name, kind, None, doc)
    }

    pub(crate) const fn active(mut self) -> Property {
        self.status = Status::Active;
        self
    }

    pub(crate) const fn live(mut self) -> Property {
        self.live = true;
        self
    }

    pub(crate) const fn no_meaning(mut self) -> Property {
        self.status = Status::NoMeaning;
        self
    }

    pub(crate) const fn internal(mut self) -> Property {
        self.visibility = Visibility::Internal;
        self.default = None;
        self
    }
}

impl Property {
    /// True for a broker property that a running broker can change: a live one, or one that gives the
    /// default of a topic property, the strongest where several do.
    #[must_use]
    pub fn is_dynamic(&self) -> bool {
        let gives_default = |topic: &Property| {
            let strongest = topic.synonyms.first();
            strongest.is_some_and(|synonym| synonym.name == self.name)
        };
        self.scope == Scope::Broker
            && (self.live
                || self.status != Status::NoMeaning
                    && properties(Scope::Topic).iter().any(gives_default))
    }
}

/// The properties of `scope`, sorted by name.
#[must_use]
pub fn properties(scope: Scope) -> &'static [Property] {
    match scope {
        Scope::Topic => TOPIC_PROPERTIES,
        Scope::Broker => BROKER_PROPERTIES,
        Scope::Group => GROUP_PROPERTIES,
    }
}

/// The property of that exact name.
#[must_use]
pub fn find(scope: Scope, name: &str) -> Option<&'static Property> {
    let table = properties(scope);
    table
        .binary_search_by(|property| property.name.cmp(name))
        .ok()
        .map(|i| &table[i])
}

/// The known name that `name` was most likely meant to be; `None` when nothing is near.
#[must_use]
pub fn nearest(scope: Scope, name: &str) -> Option<&'static str> {
    // A topic property given to a broker is not a typing error: name the broker's form of it.
    if scope == Scope::Broker
        && let Some(property) = find(Scope::Topic, name)
        && let Some(synonym) = property.synonyms.first()
    {
        return Some(synonym.name);
    }
    let name = as_written_in_files(name);
    let limit = (name.len() / LENGTH_PER_SLIP).clamp(1, SLIPS_MAX);
    let registry = properties(scope).iter();
    let registry = registry
        .filter(|property| property.visibility == Visibility::Public)
        .map(|property| property.name);
    let others = match scope {
        Scope::Topic | Scope::Group => &[],
        Scope::Broker => KAFKA_KEYS,
    };
    registry
        .chain(others.iter().flat_map(|keys| keys.names).copied())
        .map(|known| (edit_distance(&name, known, limit), known))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// A name is taken for a slip of a known one up to so many wrong letters: one per so much length, so
/// that a name of somebody else's is not.
const LENGTH_PER_SLIP: usize = 4;
const SLIPS_MAX: usize = 3;

/// `LOG_DIRS` and `log-dirs` are near `log.dirs`.
fn as_written_in_files(name: &str) -> String {
    name.to_ascii_lowercase().replace(['_', '-'], ".")
}

/// Levenshtein distance in bytes; above `limit` any larger number may come back.
fn edit_distance(a: &str, b: &str, limit: usize) -> usize {
    if a.len().abs_diff(b.len()) > limit {
        return limit + 1;
    }
    let b = b.as_bytes();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::{Scope, edit_distance, find, nearest, properties};

    #[test]
    fn tables_are_sorted_unique_and_documented() {
        for scope in [Scope::Topic, Scope::Broker, Scope::Group] {
            let table = properties(scope);
            for pair in table.windows(2) {
                assert!(
                    pair[0].name < pair[1].name,
                    "{} before {}",
                    pair[0].name,
                    pair[1].name
                );
            }
            for property in table {
                assert_eq!(property.scope, scope, "{}", property.name);
                assert!(
                    property.doc.ends_with('.'),
                    "{}: {}",
                    property.name,
                    property.doc
                );
            }
        }
    }

    #[test]
    fn defaults_are_allowed_values_and_synonyms_exist() {
        for property in properties(Scope::Topic)
            .iter()
            .chain(properties(Scope::Broker))
            .chain(properties(Scope::Group))
        {
            if let Some(default) = property.default {
                let value = property.kind.parse(default);
                assert_eq!(
                    value.map(|v| v.to_string()),
                    Ok(default.to_string()),
                    "{}",
                    property.name
                );
            }
            for synonym in property.synonyms {
                assert!(
                    find(Scope::Broker, synonym.name).is_some(),
                    "{}",
                    synonym.name
                );
            }
        }
    }

    #[test]
    fn near_misses_are_suggested() {
        assert_eq!(nearest(Scope::Topic, "retention.mss"), Some("retention.ms"));
        assert_eq!(
            nearest(Scope::Broker, "num.partition"),
            Some("num.partitions")
        );
        assert_eq!(
            nearest(Scope::Broker, "retention.ms"),
            Some("log.retention.ms")
        );
        assert_eq!(nearest(Scope::Broker, "LOG_DIRS"), Some("log.dirs"));
        assert_eq!(
            nearest(Scope::Broker, "ssl.keystor.location"),
            Some("ssl.keystore.location")
        );
        for foreign in [
            "colour.of.the.sky",
            "confluent.metrics.reporter.bootstrap.servers",
            "my.reporter.topic",
            "port",
        ] {
            assert_eq!(nearest(Scope::Broker, foreign), None, "{foreign}");
        }
        assert_eq!(nearest(Scope::Topic, ""), None);
    }

    #[test]
    fn distances() {
        assert_eq!(edit_distance("kitten", "sitting", 9), 3);
        assert_eq!(edit_distance("", "abc", 9), 3);
        assert_eq!(edit_distance("abc", "abc", 9), 0);
        assert!(edit_distance("a", "abcdef", 2) > 2);
    }
}
