//! Settings that do not go together, and what this broker can not be.

use thalweg_types::limits::LOG_DIRS_MAX;

use crate::broker::BrokerConfig;
use crate::error::ConfigError;
use crate::value::Value;

impl BrokerConfig {
    /// Everything of the kind, but for listeners.
    pub(crate) fn conflicts(&self) -> Vec<ConfigError> {
        let mut found: Vec<ConfigError> = self.crossed_lags().into_iter().collect();
        found.extend(self.crossed_group_times());
        let reasons = self.bad_quorum().into_iter().chain(self.bad_directories());
        found.extend(reasons.map(|(key, reason)| ConfigError::Unusable { key, reason }));
        if let Some(class) = self.text("authorizer.class.name") {
            found.push(ConfigError::Unusable {
                key: "authorizer.class.name",
                reason: format!(
                    "{class}: access control does not exist in this version, and nothing would be \
                     enforced; take the line out to run without"
                ),
            });
        }
        found
    }

    fn items(&self, key: &str) -> &[String] {
        match self.explicit(key) {
            Some(Value::List(items)) => items,
            _not_set => &[],
        }
    }

    /// This broker is the one controller of a cluster of one.
    fn bad_quorum(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let node_id = self.node_id();
        if let Some(Value::Int(id)) = self.explicit("broker.id")
            && *id != i64::from(node_id.0)
        {
            let reason = format!("{id} is not node.id, which is {node_id}");
            found.push(("broker.id", reason));
        }
        if let [_one] = self.items("process.roles") {
            let reason = "this broker is its own controller: write broker,controller";
            found.push(("process.roles", reason.to_owned()));
        }
        let own = format!("{node_id}@");
        let voters = self.items("controller.quorum.voters");
        let others = voters.iter().filter(|voter| !voter.starts_with(&own));
        if let Some(other) = others.chain(voters.get(1)).next() {
            let reason = format!("{other}: this broker (node.id={node_id}) is the only voter");
            found.push(("controller.quorum.voters", reason));
        }
        let servers = "controller.quorum.bootstrap.servers";
        if let [_, second, ..] = self.items(servers) {
            let reason = format!("{second}: this broker is the only controller");
            found.push((servers, reason));
        }
        found
    }

    /// There must be one, and no more than can be numbered.
    fn bad_directories(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        for key in ["log.dirs", "log.dir"] {
            let count = self.items(key).len();
            if count > LOG_DIRS_MAX {
                let reason = format!("{count} directories; at most {LOG_DIRS_MAX} are served");
                found.push((key, reason));
            }
        }
        if let Some(Value::List(items)) = self.explicit("log.dir")
            && items.is_empty()
            && self.items("log.dirs").is_empty()
        {
            found.push(("log.dir", "name a directory for the data".to_owned()));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use thalweg_types::limits::LOG_DIRS_MAX;

    use crate::settings::Settings;

    fn refusal(file: &str) -> Option<String> {
        let mut settings = Settings::new();
        settings.add_file("f", file.as_bytes());
        settings.load().err().map(|errors| errors.to_string())
    }

    #[test]
    fn what_a_cluster_of_one_can_be() {
        for good in [
            "process.roles=controller, broker\nnode.id=4\ncontroller.quorum.voters=4@h:9093",
            "broker.id=7\ncontroller.quorum.bootstrap.servers=h:9093",
            "log.dirs=/a\nmetadata.log.dir=/a",
            "log.dirs=/a, /b\nmetadata.log.dir=/m",
            "log.dirs=/a\nlog.dir=",
            "log.dirs=",
            "authorizer.class.name=",
        ] {
            assert_eq!(refusal(good), None, "{good}");
        }
    }

    #[test]
    fn what_it_can_not_be_is_said_with_its_line() {
        for (file, start) in [
            (
                "\nprocess.roles=broker",
                "f:2: process.roles: this broker is",
            ),
            ("process.roles=both", "f:1: Invalid value both"),
            ("node.id=1\nbroker.id=2", "f:2: broker.id: 2 is not"),
            (
                "controller.quorum.voters=2@h:1",
                "f:1: controller.quorum.voters: 2@h:1",
            ),
            (
                "controller.quorum.voters=1@h:1,2@i:1",
                "f:1: controller.quorum.voters: 2@i:1",
            ),
            ("log.dir=", "f:1: log.dir: name a directory"),
            (
                "authorizer.class.name=A",
                "f:1: authorizer.class.name: A: access control",
            ),
        ] {
            let text = refusal(file).expect(file);
            assert!(text.starts_with(start), "{file}: {text}");
        }
    }

    #[test]
    fn log_dirs_are_a_list_and_log_dir_stands_in_for_it() {
        let dirs = |file: &str| {
            let mut settings = Settings::new();
            settings.add_file("f", file.as_bytes());
            let config = settings.load().expect(file).config;
            let metadata = config.metadata_log_dir().map(str::to_owned);
            (config.log_dirs().to_vec(), metadata)
        };
        let (logs, metadata) = dirs("log.dirs= /a , /b,/a\nlog.dir=/c");
        assert_eq!(
            (&logs[..], metadata),
            (&["/a".to_owned(), "/b".to_owned()][..], None)
        );
        assert_eq!(dirs("log.dirs=\nlog.dir=/c, /d").0, ["/c", "/d"]);
        assert_eq!(dirs("metadata.log.dir=/m").1.as_deref(), Some("/m"));
        let many: Vec<String> = (0..=LOG_DIRS_MAX).map(|i| format!("/{i}")).collect();
        let text = refusal(&format!("log.dirs={}", many.join(","))).expect("too many");
        assert!(text.starts_with("f:1: log.dirs: 101 directories"), "{text}");
    }

    #[test]
    fn broker_id_gives_node_id() {
        let mut settings = Settings::new();
        settings.add_setting("broker.id=7");
        let config = settings.load().expect("valid").config;
        assert_eq!(config.node_id().0, 7);
    }
}
