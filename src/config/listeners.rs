//! Which addresses the broker listens on and tells to clients, out of the properties that say so
//! (KIP-103; with a controller listener beside them: KIP-500).

use std::collections::{BTreeMap, BTreeSet};

use crate::broker::BrokerConfig;
use crate::error::ConfigError;
use crate::value::{Endpoint, Value};
use thalweg_types::limits::LISTENERS_MAX;

/// Protocols that a listener can have.
const PROTOCOLS: [&str; 4] = ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"];

/// What helps to word a message.
pub(crate) struct Advice<'a> {
    /// This machine's name.
    pub host_name: Option<&'a str>,
    /// The file that settings came from.
    pub file: Option<&'a str>,
}

impl BrokerConfig {
    /// The listeners that clients connect to, in the order of `listeners`: at least one and at most
    /// [`LISTENERS_MAX`] after [`crate::Settings::load`], which refuses other settings. A host that
    /// is empty is every address of the machine.
    #[must_use]
    pub fn client_listeners(&self) -> Vec<Endpoint> {
        let controllers = controller_names(self);
        let all = configured(self).into_iter();
        all.filter(|at| !controllers.contains(&at.name)).collect()
    }

    /// What the clients of the listener `name` are told to connect to, where that is set.
    #[must_use]
    pub fn advertised_listener(&self, name: &str) -> Option<Endpoint> {
        endpoints(self, "advertised.listeners")
            .into_iter()
            .find(|at| at.name == name)
    }
}

/// Everything in `listeners`.
pub(crate) fn configured(config: &BrokerConfig) -> Vec<Endpoint> {
    endpoints(config, "listeners")
}

/// The listeners of `controller.listener.names`, which are for the quorum and not for clients.
pub(crate) fn controller_names(config: &BrokerConfig) -> BTreeSet<String> {
    let names = list(config, "controller.listener.names").iter();
    names.map(|name| name.to_ascii_uppercase()).collect()
}

/// Controller listeners: they are not bound, because this broker is its own controller.
pub(crate) fn unbound(config: &BrokerConfig) -> Vec<Endpoint> {
    let controllers = controller_names(config);
    let all = configured(config).into_iter();
    all.filter(|at| controllers.contains(&at.name)).collect()
}

fn list<'c>(config: &'c BrokerConfig, key: &str) -> &'c [String] {
    match config.value(key) {
        Some(Value::List(items)) => items,
        _other => &[],
    }
}

fn endpoints(config: &BrokerConfig, key: &str) -> Vec<Endpoint> {
    let items = list(config, key).iter();
    items.filter_map(|item| Endpoint::parse(item)).collect()
}

/// Everything about listeners that does not go together or can not be had.
pub(crate) fn conflicts(config: &BrokerConfig, advice: &Advice<'_>) -> Vec<ConfigError> {
    let all = configured(config);
    let clients = config.client_listeners();
    let mut found = Vec::new();
    let mut refuse = |key: &'static str, reason: String| {
        found.push(ConfigError::Unusable { key, reason });
    };
    let mut names = BTreeSet::new();
    for at in &all {
        if !names.insert(at.name.as_str()) {
            refuse("listeners", format!("two listeners are called {}", at.name));
        }
    }
    match protocols(config) {
        Ok(protocols) => {
            let bad = clients
                .iter()
                .filter_map(|at| not_plaintext(&protocols, at));
            bad.for_each(|reason| refuse("listeners", reason));
        }
        Err(reason) => refuse("listener.security.protocol.map", reason),
    }
    if clients.is_empty() {
        let reason = "no listener for clients: add for example PLAINTEXT://127.0.0.1:9092";
        refuse("listeners", reason.to_owned());
    }
    if clients.len() > LISTENERS_MAX {
        let reason = format!(
            "{} listeners for clients; {LISTENERS_MAX} are served",
            clients.len()
        );
        refuse("listeners", reason);
    }
    if let Some(reason) = nowhere_to_connect(config, &clients, advice) {
        refuse("listeners", reason);
    }
    for reason in one_address_twice(&all) {
        refuse("listeners", reason);
    }
    for reason in bad_advertised(config, &names) {
        refuse("advertised.listeners", reason);
    }
    let between = config.text("inter.broker.listener.name");
    let is_for_clients = |name: &str| clients.iter().any(|at| at.name.eq_ignore_ascii_case(name));
    let unknown = between.filter(|name| !is_for_clients(name));
    if let Some(name) = unknown {
        let reason = format!("no listener for clients is called {name}");
        refuse("inter.broker.listener.name", reason);
    }
    found
}

/// Why `at` can not serve clients.
fn not_plaintext(protocols: &BTreeMap<String, String>, at: &Endpoint) -> Option<String> {
    match protocols.get(&at.name).map(String::as_str) {
        Some("PLAINTEXT") => None,
        Some(protocol) => Some(format!(
            "{at} is a {protocol} listener; only PLAINTEXT is served in this version"
        )),
        None => Some(format!(
            "{0} has no security protocol: add {0}:PLAINTEXT to listener.security.protocol.map, or \
             {0} to controller.listener.names",
            at.name
        )),
    }
}

/// Name of each listener to its security protocol.
fn protocols(config: &BrokerConfig) -> Result<BTreeMap<String, String>, String> {
    let text = config.text("listener.security.protocol.map").unwrap_or("");
    let mut map = BTreeMap::new();
    for item in text
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
    {
        let protocol = |name: &str| PROTOCOLS.into_iter().find(|known| *known == name);
        let pair = item.split_once(':');
        let pair =
            pair.and_then(|(name, word)| Some((name, protocol(&word.to_ascii_uppercase())?)));
        let Some((name, protocol)) = pair else {
            return Err(format!("{item:?} is not NAME:{}", PROTOCOLS.join("|")));
        };
        map.insert(name.to_ascii_uppercase(), protocol.to_owned());
    }
    Ok(map)
}

fn bad_advertised(config: &BrokerConfig, names: &BTreeSet<&str>) -> Vec<String> {
    let mut reasons = Vec::new();
    for at in endpoints(config, "advertised.listeners") {
        if !names.contains(at.name.as_str()) {
            reasons.push(format!("{} is not the name of a listener", at.name));
        } else if at.is_every_address() || at.port == 0 {
            reasons.push(format!(
                "{at} is nothing that a client can connect to: name a host and a port"
            ));
        }
    }
    reasons
}

/// Listeners with a port of their own that another one has on the same host. A port that two hosts
/// have may be an address of each family (KIP-797); the kernel says so when it is not.
fn one_address_twice(all: &[Endpoint]) -> Vec<String> {
    let clash = |(i, at): (usize, &Endpoint)| {
        let mut before = all[..i].iter();
        let same = before.find(|b| at.port != 0 && (&b.host, b.port) == (&at.host, at.port))?;
        Some(format!("{same} and {at} are the same address"))
    };
    all.iter().enumerate().filter_map(clash).collect()
}

/// Why clients could not be told where to connect: listeners on every address have no address of
/// their own. The advice is the whole line, since the key can be given once only.
fn nowhere_to_connect(
    config: &BrokerConfig,
    clients: &[Endpoint],
    advice: &Advice<'_>,
) -> Option<String> {
    let told = endpoints(config, "advertised.listeners");
    let is_told = |at: &Endpoint| told.iter().any(|told| told.name == at.name);
    let silent = |at: &&Endpoint| at.is_every_address() && !is_told(at);
    let first = clients.iter().find(silent)?;
    let host = advice.host_name.unwrap_or("HOST");
    let line = |at: &Endpoint| match at.port {
        0 => format!("{}://{host}:PORT", at.name),
        port => format!("{}://{host}:{port}", at.name),
    };
    let mut items: Vec<String> = told.iter().map(Endpoint::to_string).collect();
    items.extend(clients.iter().filter(silent).map(line));
    let line = format!("advertised.listeners={}", items.join(","));
    let advice = match (advice.file, told.is_empty()) {
        (Some(file), true) => format!("add this line to {file}:\n{line}"),
        (Some(file), false) => format!("make it this line in {file}:\n{line}"),
        (None, _) => format!("add --set {line}"),
    };
    Some(format!(
        "{first} is every address of this machine, and clients must be told one of them: {advice}"
    ))
}

#[cfg(test)]
mod tests {
    use crate::settings::Settings;

    fn load(file: &str) -> Result<crate::LoadedBrokerConfig, String> {
        let mut settings = Settings::new();
        settings.know_host_name("box");
        settings.add_file("f", file.as_bytes());
        settings.load().map_err(|errors| errors.to_string())
    }

    #[test]
    fn the_listeners_of_kafkas_sample() {
        let loaded = load(
            "process.roles=broker,controller\n\
             listeners=PLAINTEXT://:9092,CONTROLLER://:9093\n\
             inter.broker.listener.name=PLAINTEXT\n\
             advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n\
             controller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL\n",
        )
        .expect("Kafka's sample");
        let config = loaded.config;
        assert_eq!(
            config.client_listeners()[0].to_string(),
            "PLAINTEXT://:9092"
        );
        let told = config.advertised_listener("PLAINTEXT").expect("advertised");
        assert_eq!((told.host.as_str(), told.port), ("localhost", 9092));
        let about_controller: Vec<_> = loaded
            .warnings
            .iter()
            .map(ToString::to_string)
            .filter(|text| text.contains("CONTROLLER"))
            .collect();
        assert_eq!(
            about_controller,
            ["f:2: CONTROLLER://:9093 is not bound: this broker is its own controller"]
        );
    }

    #[test]
    fn every_address_needs_one_that_clients_are_told() {
        for (listener, line) in [
            ("PLAINTEXT://:9092", "PLAINTEXT://box:9092"),
            ("PLAINTEXT://0.0.0.0:9092", "PLAINTEXT://box:9092"),
            ("plaintext://[::]:0", "PLAINTEXT://box:PORT"),
        ] {
            let text = load(&format!("\nlisteners={listener}")).expect_err("no address to tell");
            let line = format!("add this line to f:\nadvertised.listeners={line}");
            assert!(text.starts_with("f:2: ") && text.contains(&line), "{text}");
        }
        let mut settings = Settings::new();
        settings.add_listen(":9092");
        let text = settings.load().expect_err("no address to tell").to_string();
        let advice = "add --set advertised.listeners=PLAINTEXT://HOST:9092";
        assert!(
            text.starts_with("--listen: ") && text.contains(advice),
            "{text}"
        );
    }

    #[test]
    fn the_line_to_add_names_every_listener_without_an_address() {
        let map = "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT\n";
        let three = "\nlisteners=A://:1,B://b:2,C://0.0.0.0:3\n";
        let text = load(&format!("{map}{three}")).expect_err("no address to tell");
        assert!(
            text.ends_with(":\nadvertised.listeners=A://box:1,C://box:3"),
            "{text}"
        );
        let told = "advertised.listeners=C://outside:30\n";
        let text = load(&format!("{map}{told}{three}")).expect_err("no address to tell");
        let line = "make it this line in f:\nadvertised.listeners=C://outside:30,A://box:1";
        assert!(text.ends_with(line), "{text}");
        load(&format!("{map}advertised.listeners=A://a:1,C://c:3{three}")).expect("all are told");
    }

    #[test]
    fn names_of_listeners_have_no_case() {
        let loaded = load(
            "listeners=internal://h:1\ninter.broker.listener.name=Internal\n\
             listener.security.protocol.map=iNTERNAL:plaintext",
        );
        let listener = loaded.expect("valid").config.client_listeners().remove(0);
        assert_eq!(listener.to_string(), "INTERNAL://h:1");
    }

    #[test]
    fn what_can_not_be_had_is_refused() {
        for (file, word) in [
            ("listeners=SASL_SSL://h:9092", "SASL_SSL"),
            (
                "listeners=A://h:1\nlistener.security.protocol.map=A:SSL",
                "SSL",
            ),
            ("listeners=A://h:1", "controller.listener.names"),
            (
                "listeners=A://h:1,B://h:1\nlistener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT",
                "A://h:1 and B://h:1 are the same address",
            ),
            ("listeners=PLAINTEXT://h:1,PLAINTEXT://h:2", "two listeners"),
            (
                "listeners=C://:1\ncontroller.listener.names=C",
                "no listener for clients",
            ),
            (
                "listener.security.protocol.map=PLAINTEXT:WHAT",
                "NAME:PLAINTEXT|SSL",
            ),
            (
                "advertised.listeners=PLAINTEXT://0.0.0.0:9092",
                "name a host",
            ),
            (
                "advertised.listeners=OTHER://h:9092",
                "not the name of a listener",
            ),
            ("inter.broker.listener.name=X", "called X"),
            ("listeners=PLAINTEXT//h:1", "NAME://host:port"),
        ] {
            let text = load(file).expect_err(file);
            assert!(
                text.starts_with("f:") && text.contains(word),
                "{file}: {text}"
            );
        }
    }

    #[test]
    fn listen_replaces_the_address_and_keeps_the_name() {
        let mut settings = Settings::new();
        settings.add_file(
            "f",
            b"listeners=OUT://:9092,CONTROLLER://:9093\nadvertised.listeners=OUT://h:9092\n\
              controller.listener.names=CONTROLLER\nlistener.security.protocol.map=OUT:PLAINTEXT",
        );
        settings.add_listen("[::1]:19092");
        let config = settings.load().expect("valid").config;
        assert_eq!(
            config.client_listeners()[0].to_string(),
            "OUT://[::1]:19092"
        );
        assert_eq!(
            config.advertised_listener("OUT").map(|at| at.port),
            Some(9092)
        );
    }
}
