//! Settings as DescribeConfigs tells them: value, source, and every setting that could have given the
//! value, strongest first (KIP-226).

use std::collections::BTreeMap;

use crate::broker::BrokerConfig;
use crate::property::{self, Property, Scope, Status, Visibility, properties};
use crate::topic::{ConfigSource, layered_value, parse_override};
use crate::value::Value;

/// One property with where its value comes from.
#[derive(Clone, PartialEq, Debug)]
pub struct Described {
    /// The property.
    pub property: &'static Property,
    /// The value in force, in text form; `None` when there is none.
    pub value: Option<String>,
    /// Where the value comes from.
    pub source: ConfigSource,
    /// Every setting that gives a value, strongest first; the first one is in force.
    pub synonyms: Vec<DescribedSynonym>,
    /// True when it can not be changed while the broker runs.
    pub read_only: bool,
}

/// A setting that gives a property its value, or would if no stronger one did.
#[derive(Clone, PartialEq, Debug)]
pub struct DescribedSynonym {
    /// Its name: the property's own, or that of a broker property.
    pub name: &'static str,
    /// Its value, in its own unit.
    pub value: String,
    /// Where it is set.
    pub source: ConfigSource,
}

/// Every public topic property, sorted by name, for a topic with these stored `overrides`.
#[must_use]
pub fn describe_topic<'a>(
    broker: &BrokerConfig,
    overrides: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Vec<Described> {
    describe_own(broker, Scope::Topic, overrides)
}

/// Every property of groups, sorted by name, for a group with these `stored` settings, as they were
/// given.
#[must_use]
pub fn describe_group<'a>(
    broker: &BrokerConfig,
    stored: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Vec<Described> {
    describe_own(broker, Scope::Group, stored)
}

fn describe_own<'a>(
    broker: &BrokerConfig,
    scope: Scope,
    stored: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Vec<Described> {
    let usable = |(key, text): (&str, &str)| parse_override(scope, key, Some(text)).ok();
    let own: BTreeMap<&'static str, Value> = stored.into_iter().filter_map(usable).collect();
    let listed = properties(scope).iter();
    let listed = listed.filter(|property| property.visibility == Visibility::Public);
    let describe = |property: &'static Property| {
        let (value, source) = layered_value(broker, &own, property)?;
        let value = value.to_string();
        let mut synonyms = Vec::new();
        if own.contains_key(property.name) {
            synonyms.push(DescribedSynonym {
                name: property.name,
                value: value.clone(),
                source,
            });
        }
        let names = property.synonyms.iter().map(|synonym| synonym.name);
        synonyms.extend(chain(broker, &names.collect::<Vec<_>>()));
        Some(Described {
            property,
            value: Some(value),
            source,
            synonyms,
            read_only: false,
        })
    };
    listed.filter_map(describe).collect()
}

/// Every public broker property that means something here or was set while the broker ran, sorted by name.
#[must_use]
pub fn describe_broker(broker: &BrokerConfig) -> Vec<Described> {
    let [(_, own), (_, cluster_wide), _at_start] = broker.layers();
    let was_set = |name: &str| own.contains_key(name) || cluster_wide.contains_key(name);
    let listed = properties(Scope::Broker).iter().filter(|property| {
        property.visibility == Visibility::Public
            && (property.status != Status::NoMeaning || was_set(property.name))
    });
    let describe = |property: &'static Property| {
        let synonyms = chain(broker, &[property.name]);
        let strongest = synonyms.first();
        Described {
            property,
            value: strongest.map(|synonym| synonym.value.clone()),
            source: strongest.map_or(ConfigSource::Default, |synonym| synonym.source),
            synonyms,
            read_only: !property.is_dynamic(),
        }
    };
    listed.map(describe).collect()
}

/// What was set for all brokers while they ran.
#[must_use]
pub fn describe_all_brokers(broker: &BrokerConfig) -> Vec<Described> {
    let [_own, (source, cluster_wide), _at_start] = broker.layers();
    let describe = |name: &&'static str| {
        let property = property::find(Scope::Broker, name)?;
        let synonym = DescribedSynonym {
            name: property.name,
            value: cluster_wide.get(name)?.to_string(),
            source,
        };
        Some(Described {
            property,
            value: Some(synonym.value.clone()),
            source,
            synonyms: vec![synonym],
            read_only: false,
        })
    };
    cluster_wide.keys().filter_map(describe).collect()
}

/// Values of these broker properties: layer by layer, within a layer in the order given, defaults
/// last.
fn chain(broker: &BrokerConfig, names: &[&'static str]) -> Vec<DescribedSynonym> {
    let mut chain = Vec::new();
    for (source, layer) in broker.layers() {
        for name in names {
            if let Some(value) = layer.get(name) {
                let value = value.to_string();
                chain.push(DescribedSynonym {
                    name,
                    value,
                    source,
                });
            }
        }
    }
    for name in names {
        let default = property::find(Scope::Broker, name).and_then(|property| property.default);
        if let Some(default) = default {
            chain.push(DescribedSynonym {
                name,
                value: default.to_string(),
                source: ConfigSource::Default,
            });
        }
    }
    chain
}

#[cfg(test)]
mod tests {
    use super::{Described, describe_all_brokers, describe_broker, describe_group, describe_topic};
    use crate::broker::BrokerConfig;
    use crate::topic::ConfigSource;

    fn broker() -> BrokerConfig {
        let settings = ["log.retention.hours=24", "log.segment.bytes=2097152"];
        let start = BrokerConfig::from_settings(settings).expect("valid").config;
        start
            .with_dynamic(
                [("log.segment.bytes", "3145728")],
                [("log.segment.bytes", "4194304")],
            )
            .0
    }

    fn one<'d>(all: &'d [Described], name: &str) -> &'d Described {
        all.iter()
            .find(|d| d.property.name == name)
            .expect("listed")
    }

    fn told(described: &Described) -> Vec<(&str, &str, i8)> {
        let synonyms = described.synonyms.iter();
        synonyms
            .map(|s| (s.name, &*s.value, s.source as i8))
            .collect()
    }

    #[test]
    fn a_topic_tells_the_whole_chain() {
        let all = describe_topic(&broker(), [("segment.bytes", "1048576")]);
        let segment = one(&all, "segment.bytes");
        assert_eq!(segment.source, ConfigSource::DynamicTopic);
        assert_eq!(
            told(segment),
            [
                ("segment.bytes", "1048576", 1),
                ("log.segment.bytes", "4194304", 2),
                ("log.segment.bytes", "3145728", 3),
                ("log.segment.bytes", "2097152", 4),
                ("log.segment.bytes", "1073741824", 5),
            ]
        );
        let retention = one(&all, "retention.ms");
        assert_eq!(retention.value.as_deref(), Some("86400000"));
        assert_eq!(retention.source, ConfigSource::StaticBroker);
        assert_eq!(
            told(retention),
            [
                ("log.retention.hours", "24", 4),
                ("log.retention.hours", "168", 5),
            ]
        );
        assert!(all.iter().all(|d| d.value.is_some() && !d.read_only));
        assert_eq!(all.len(), 33);
    }

    #[test]
    fn a_group_tells_its_own_over_the_brokers() {
        let all = describe_group(&broker(), [("consumer.session.timeout.ms", "50000")]);
        let told_of: Vec<_> = all
            .iter()
            .map(|d| (d.value.as_deref(), d.source as i8, told(d)))
            .collect();
        let assignment = vec![("group.consumer.assignment.interval.ms", "1000", 5)];
        let heartbeat = vec![("group.consumer.heartbeat.interval.ms", "5000", 5)];
        let session = vec![
            ("consumer.session.timeout.ms", "50000", 8),
            ("group.consumer.session.timeout.ms", "45000", 5),
        ];
        assert_eq!(
            told_of,
            [
                (Some("1000"), 5, assignment),
                (Some("5000"), 5, heartbeat),
                (Some("50000"), 8, session)
            ]
        );
    }

    #[test]
    fn a_broker_tells_what_it_can_change() {
        let all = describe_broker(&broker());
        let segment = one(&all, "log.segment.bytes");
        assert_eq!(
            (segment.value.as_deref(), segment.read_only),
            (Some("4194304"), false)
        );
        assert_eq!(segment.synonyms.len(), 4);
        let node = one(&all, "node.id");
        assert_eq!((node.value.as_deref(), node.read_only), (Some("1"), true));
        assert_eq!(one(&all, "broker.rack").value, None);
        assert!(all.iter().all(|d| d.property.name != "num.io.threads"));
        let (changed, _) = broker().with_dynamic([], [("num.io.threads", "9")]);
        let all = describe_broker(&changed);
        let threads = one(&all, "num.io.threads");
        assert_eq!(
            (threads.value.as_deref(), threads.read_only),
            (Some("9"), false)
        );
    }

    #[test]
    fn all_brokers_tell_only_what_was_set_for_all() {
        let all = describe_all_brokers(&broker());
        assert_eq!(all.len(), 1);
        assert_eq!(told(&all[0]), [("log.segment.bytes", "3145728", 3)]);
    }
}
