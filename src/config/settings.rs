//! The settings of a start: what a file, `--set` and flags say, put together and checked.

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use crate::broker::{BrokerConfig, Layer, parse};
use crate::error::{ConfigError, ConfigErrors, ConfigWarning};
use crate::kafka_keys;
use crate::listeners;
use crate::properties_file::parse_properties;
use crate::property::{self, Scope};
use crate::value::{Endpoint, Value};

/// Where a setting was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// In a file, on a line (from 1).
    File(Rc<str>, usize),
    /// By a flag, named with its dashes.
    Flag(&'static str),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File(name, line) => write!(f, "{name}:{line}"),
            Place::Flag(flag) => f.write_str(flag),
        }
    }
}

/// An error or a warning, and where what it is about was given, if anywhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed<T> {
    /// Where.
    pub place: Option<Place>,
    /// What.
    pub what: T,
}

impl<T: fmt::Display> fmt::Display for Placed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.what),
            None => self.what.fmt(f),
        }
    }
}

/// The outcome of [`Settings::load`].
#[derive(Clone, PartialEq, Debug)]
pub struct LoadedBrokerConfig {
    /// The settings.
    pub config: BrokerConfig,
    /// Settings that were taken but change nothing, or not all that they seem to; one line each for
    /// the log.
    pub warnings: Vec<Placed<ConfigWarning>>,
}

#[derive(Clone, Debug)]
struct Setting {
    place: Place,
    key: String,
    given: Given,
}

#[derive(Clone, Debug)]
enum Given {
    Text(String),
    /// From a flag whose text is not that of the property: a path may have a comma.
    Value(Value),
}

/// Settings as they were given. One that is added later wins over an earlier one of its key.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    given: Vec<Setting>,
    errors: Vec<Placed<ConfigError>>,
    listen: Option<Endpoint>,
    host_name: Option<String>,
}

impl Settings {
    /// No settings: all defaults.
    #[must_use]
    pub fn new() -> Settings {
        Settings::default()
    }

    /// The name of this machine, which a message may propose to advertise.
    pub fn know_host_name(&mut self, name: &str) {
        self.host_name = Some(name.to_owned());
    }

    /// Adds what a property file says; `name` is how messages call it.
    pub fn add_file(&mut self, name: &str, bytes: &[u8]) {
        let name: Rc<str> = name.into();
        for entry in parse_properties(bytes) {
            match entry {
                Ok(entry) => self.given.push(Setting {
                    place: Place::File(Rc::clone(&name), entry.line),
                    key: entry.key,
                    given: Given::Text(entry.value),
                }),
                Err(bad) => self.errors.push(Placed {
                    place: Some(Place::File(Rc::clone(&name), bad.line)),
                    what: ConfigError::BadEscape,
                }),
            }
        }
    }

    /// Adds one `key=value`, as given by `--set`.
    pub fn add_setting(&mut self, setting: &str) {
        let place = Place::Flag("--set");
        match setting.split_once('=') {
            Some((key, value)) => self.given.push(Setting {
                place,
                key: key.trim().to_owned(),
                given: Given::Text(value.to_owned()),
            }),
            None => self.errors.push(Placed {
                place: Some(place),
                what: ConfigError::NotASetting {
                    setting: setting.to_owned(),
                },
            }),
        }
    }

    /// Adds the directory that `--data-dir` names, as it stands.
    pub fn add_data_dir(&mut self, dir: &str) {
        self.given.push(Setting {
            place: Place::Flag("--data-dir"),
            key: "log.dirs".to_owned(),
            given: Given::Value(Value::List(vec![dir.to_owned()])),
        });
    }

    /// Adds the address that `--listen` names. It replaces the address of the client listener;
    /// `advertised.listeners` stays.
    pub fn add_listen(&mut self, address: &str) {
        match Endpoint::parse(&format!("PLAINTEXT://{address}")) {
            Some(endpoint) => self.listen = Some(endpoint),
            None => self.errors.push(Placed {
                place: Some(Place::Flag("--listen")),
                what: ConfigError::NotAnAddress {
                    address: address.to_owned(),
                },
            }),
        }
    }

    /// Checks everything together.
    ///
    /// # Errors
    /// All that is wrong, not only the first, each with its place: keys that look like a known one,
    /// values that are not allowed, settings that do not go together or that this broker can not
    /// honour.
    pub fn load(self) -> Result<LoadedBrokerConfig, ConfigErrors> {
        let mut loading = Loading::default();
        let last: HashMap<&str, usize> = self
            .given
            .iter()
            .enumerate()
            .map(|(i, setting)| (setting.key.as_str(), i))
            .collect();
        loading.errors = self.errors.clone();
        for (i, setting) in self.given.iter().enumerate() {
            let winner = last[setting.key.as_str()];
            if winner == i {
                loading.take(setting);
            } else {
                loading.warn_of_repetition(setting, &self.given[winner]);
            }
        }
        if let Some(listen) = &self.listen {
            loading.listen_at(listen);
        }
        loading.finish(self.host_name.as_deref())
    }
}

/// What has been read so far.
#[derive(Default)]
struct Loading {
    set: Layer,
    places: HashMap<&'static str, Place>,
    errors: Vec<Placed<ConfigError>>,
    warnings: Vec<Placed<ConfigWarning>>,
}

impl Loading {
    fn take(&mut self, setting: &Setting) {
        let Some(property) = property::find(Scope::Broker, &setting.key) else {
            return self.take_unknown(setting);
        };
        let place = Some(setting.place.clone());
        let value = match &setting.given {
            Given::Value(value) => Ok(value.clone()),
            Given::Text(text) => parse(property, text),
        };
        match value {
            Ok(value) => {
                self.set.insert(property.name, value);
                self.places.insert(property.name, setting.place.clone());
                let warning = ConfigWarning::of(property);
                self.warnings
                    .extend(warning.map(|what| Placed { place, what }));
            }
            Err(what) => self.errors.push(Placed { place, what }),
        }
    }

    fn take_unknown(&mut self, setting: &Setting) {
        let key = &setting.key;
        let place = Some(setting.place.clone());
        if let Some(keys) = kafka_keys::find(key) {
            let what = ConfigWarning::OtherOfKafka {
                key: key.clone(),
                why: keys.why,
            };
            return self.warnings.push(Placed { place, what });
        }
        let nearest = property::nearest(Scope::Broker, key);
        if nearest.is_some() || key.starts_with("thalweg.") || key.is_empty() {
            let what = ConfigError::UnknownKey {
                scope: Scope::Broker,
                key: key.clone(),
                nearest,
            };
            return self.errors.push(Placed { place, what });
        }
        let what = ConfigWarning::Foreign { key: key.clone() };
        self.warnings.push(Placed { place, what });
    }

    /// Flags are there to win over a file; within a file a second setting is likely a mistake.
    fn warn_of_repetition(&mut self, earlier: &Setting, winner: &Setting) {
        if let (Place::File(..), Place::File(..)) = (&earlier.place, &winner.place) {
            self.warnings.push(Placed {
                place: Some(earlier.place.clone()),
                what: ConfigWarning::Repeated {
                    key: earlier.key.clone(),
                    winner: winner.place.to_string(),
                },
            });
        }
    }

    fn listen_at(&mut self, listen: &Endpoint) {
        let config = BrokerConfig::of_start(self.set.clone());
        let mut endpoints = listeners::configured(&config);
        let controllers = listeners::controller_names(&config);
        let client = endpoints
            .iter_mut()
            .find(|at| !controllers.contains(&at.name));
        match client {
            Some(client) => {
                client.host.clone_from(&listen.host);
                client.port = listen.port;
            }
            None => endpoints.push(listen.clone()),
        }
        let items = endpoints.iter().map(Endpoint::to_string).collect();
        self.set.insert("listeners", Value::List(items));
        self.places.insert("listeners", Place::Flag("--listen"));
    }

    fn finish(mut self, host_name: Option<&str>) -> Result<LoadedBrokerConfig, ConfigErrors> {
        // Kafka takes either name for the same number.
        if let (None, Some(id)) = (self.set.get("node.id"), self.set.get("broker.id")) {
            self.set.insert("node.id", id.clone());
        }
        let file = self.places.values().find_map(|place| match place {
            Place::File(name, _) => Some(Rc::clone(name)),
            Place::Flag(_) => None,
        });
        let config = BrokerConfig::of_start(self.set);
        let advice = listeners::Advice {
            host_name,
            file: file.as_deref(),
        };
        let place_of = |key: &str| self.places.get(key).cloned();
        let found = config.conflicts().into_iter();
        let found = found.chain(listeners::conflicts(&config, &advice));
        self.errors.extend(found.map(|what| Placed {
            place: what.key().and_then(place_of),
            what,
        }));
        if !self.errors.is_empty() {
            return Err(ConfigErrors(self.errors));
        }
        let unbound = listeners::unbound(&config).into_iter();
        self.warnings.extend(unbound.map(|endpoint| Placed {
            place: self.places.get("listeners").cloned(),
            what: ConfigWarning::ControllerListener(endpoint.to_string()),
        }));
        Ok(LoadedBrokerConfig {
            config,
            warnings: self.warnings,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Settings;

    fn of_file(text: &str) -> Settings {
        let mut settings = Settings::new();
        settings.add_file("server.properties", text.as_bytes());
        settings
    }

    #[test]
    fn flags_win_over_the_file_wherever_they_stand() {
        let mut settings = of_file("num.partitions=0\nlog.dirs=/f\nnode.id=2\n");
        settings.add_setting("num.partitions=3");
        settings.add_setting("log.dirs=/s");
        settings.add_data_dir("/d,with comma");
        let loaded = settings.load().expect("the bad value does not count");
        assert_eq!(loaded.config.num_partitions(), 3);
        assert_eq!(loaded.config.log_dirs(), ["/d,with comma"]);
        assert_eq!(loaded.config.node_id().0, 2);
        assert_eq!(loaded.warnings, []);
    }

    #[test]
    fn all_errors_come_at_once_with_their_lines() {
        let mut settings = of_file(
            "# comment\nnum.partition=3\nnum.io.threads=0\nbroker.rack=\\u12\n\
             retention.ms=1\nthalweg.colour=red\n=x\nlog.dir=\n",
        );
        settings.add_setting("nothing");
        settings.add_listen("9092");
        let text = settings.load().expect_err("nine mistakes").to_string();
        let starts = [
            "server.properties:4: \\u must be",
            "--set: 'nothing' is not a setting",
            "--listen: '9092' is no address",
            "server.properties:2: Unknown broker config name: num.partition (did you mean",
            "server.properties:3: Invalid value 0 for configuration num.io.threads",
            "server.properties:5: Unknown broker config name: retention.ms (did you mean \
             log.retention.ms?)",
            "server.properties:6: Unknown broker config name: thalweg.colour",
            "server.properties:7: Unknown broker config name: ",
            "server.properties:8: log.dir: name a directory",
        ];
        assert_eq!(text.lines().count(), starts.len(), "{text}");
        for (line, start) in text.lines().zip(starts) {
            assert!(line.starts_with(start), "{line}");
        }
    }

    #[test]
    fn what_changes_nothing_is_warned_of_once_per_key() {
        let loaded = of_file(
            "confluent.support.metrics.enable=true\nssl.keystore.location=/k\n\
             ssl.keystore.location=/l\nzookeeper.connect=z:2181\nnum.io.threads=8\n",
        )
        .load()
        .expect("valid");
        let warnings: Vec<_> = loaded.warnings.iter().map(ToString::to_string).collect();
        let starts = [
            "server.properties:1: confluent.support.metrics.enable is not a property",
            "server.properties:2: ssl.keystore.location is set again at server.properties:3",
            "server.properties:3: ssl.keystore.location has no effect: TLS",
            "server.properties:4: zookeeper.connect has no effect: Kafka 4",
            "server.properties:5: num.io.threads has no effect",
        ];
        assert_eq!(warnings.len(), starts.len(), "{warnings:?}");
        for (line, start) in warnings.iter().zip(starts) {
            assert!(line.starts_with(start), "{line}");
        }
    }
}
