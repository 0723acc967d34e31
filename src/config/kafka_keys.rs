//! Broker properties of Kafka that the registry does not have: they are taken, so that existing
//! files load, and change nothing. Names are those of Kafka 4.3, and those that it removed.

use crate::property::Status;

/// Properties that have no effect for the same reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KafkaKeys {
    /// What they are about.
    pub title: &'static str,
    /// Whether they will take effect once the feature behind them exists.
    pub status: Status,
    /// Why they have none: a sentence.
    pub why: &'static str,
    /// Their names, sorted.
    pub names: &'static [&'static str],
    /// Names that begin so belong to them too.
    pub prefixes: &'static [&'static str],
}

/// The group that `name` belongs to.
#[must_use]
pub fn find(name: &str) -> Option<&'static KafkaKeys> {
    KAFKA_KEYS.iter().find(|keys| {
        let by_prefix = || keys.prefixes.iter().any(|prefix| name.starts_with(prefix));
        keys.names.binary_search(&name).is_ok() || by_prefix()
    })
}

/// Every group, in the order in which documents list them.
pub const KAFKA_KEYS: &[KafkaKeys] = &[
    KafkaKeys {
        title: "TLS",
        status: Status::NotYet,
        why: "TLS does not exist in this version: only PLAINTEXT listeners are served.",
        names: &[
            "ssl.allow.dn.changes",
            "ssl.allow.san.changes",
            "ssl.cipher.suites",
            "ssl.client.auth",
            "ssl.enabled.protocols",
            "ssl.endpoint.identification.algorithm",
            "ssl.engine.factory.class",
            "ssl.key.password",
            "ssl.keymanager.algorithm",
            "ssl.keystore.certificate.chain",
            "ssl.keystore.key",
            "ssl.keystore.location",
            "ssl.keystore.password",
            "ssl.keystore.type",
            "ssl.principal.mapping.rules",
            "ssl.protocol",
            "ssl.provider",
            "ssl.secure.random.implementation",
            "ssl.trustmanager.algorithm",
            "ssl.truststore.certificates",
            "ssl.truststore.location",
            "ssl.truststore.password",
            "ssl.truststore.type",
        ],
        prefixes: &[],
    },
    KafkaKeys {
        title: "Authentication",
        status: Status::NotYet,
        why: "Authentication does not exist in this version.",
        names: &[
            "connection.failed.authentication.delay.ms",
            "connections.max.reauth.ms",
            "delegation.token.expiry.check.interval.ms",
            "delegation.token.expiry.time.ms",
            "delegation.token.max.lifetime.ms",
            "delegation.token.secret.key",
            "principal.builder.class",
            "sasl.client.callback.handler.class",
            "sasl.enabled.mechanisms",
            "sasl.jaas.config",
            "sasl.kerberos.kinit.cmd",
            "sasl.kerberos.principal.to.local.rules",
            "sasl.kerberos.service.name",
            "sasl.login.callback.handler.class",
            "sasl.login.class",
            "sasl.login.connect.timeout.ms",
            "sasl.login.read.timeout.ms",
            "sasl.login.retry.backoff.max.ms",
            "sasl.login.retry.backoff.ms",
            "sasl.mechanism.controller.protocol",
            "sasl.mechanism.inter.broker.protocol",
            "sasl.oauthbearer.assertion.algorithm",
            "sasl.oauthbearer.assertion.claim.aud",
            "sasl.oauthbearer.assertion.claim.exp.seconds",
            "sasl.oauthbearer.assertion.claim.iss",
            "sasl.oauthbearer.assertion.claim.jti.include",
            "sasl.oauthbearer.assertion.claim.nbf.seconds",
            "sasl.oauthbearer.assertion.claim.sub",
            "sasl.oauthbearer.assertion.file",
            "sasl.oauthbearer.assertion.private.key.file",
            "sasl.oauthbearer.assertion.private.key.passphrase",
            "sasl.oauthbearer.assertion.template.file",
            "sasl.oauthbearer.client.credentials.client.id",
            "sasl.oauthbearer.client.credentials.client.secret",
            "sasl.oauthbearer.clock.skew.seconds",
            "sasl.oauthbearer.expected.audience",
            "sasl.oauthbearer.expected.issuer",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            "sasl.oauthbearer.jwks.endpoint.url",
            "sasl.oauthbearer.jwt.retriever.class",
            "sasl.oauthbearer.jwt.validator.class",
            "sasl.oauthbearer.scope",
            "sasl.oauthbearer.scope.claim.name",
            "sasl.oauthbearer.sub.claim.name",
            "sasl.oauthbearer.token.endpoint.url",
            "sasl.server.callback.handler.class",
            "sasl.server.max.receive.size",
            "security.providers",
        ],
        prefixes: &["listener.name."],
    },
    KafkaKeys {
        title: "Access control",
        status: Status::NotYet,
        why: "Access control does not exist in this version: nothing is enforced.",
        names: &["allow.everyone.if.no.acl.found", "super.users"],
        prefixes: &[],
    },
    KafkaKeys {
        title: "Remote storage",
        status: Status::NoMeaning,
        why: "Remote storage does not exist here.",
        names: &[
            "follower.fetch.last.tiered.offset.enable",
            "remote.fetch.max.wait.ms",
            "remote.list.offsets.request.timeout.ms",
            "remote.log.index.file.cache.total.size.bytes",
            "remote.log.index.file.cache.ttl.ms",
            "remote.log.manager.copier.thread.pool.size",
            "remote.log.manager.copy.max.bytes.per.second",
            "remote.log.manager.copy.quota.window.num",
            "remote.log.manager.copy.quota.window.size.seconds",
            "remote.log.manager.expiration.thread.pool.size",
            "remote.log.manager.fetch.max.bytes.per.second",
            "remote.log.manager.fetch.quota.window.num",
            "remote.log.manager.fetch.quota.window.size.seconds",
            "remote.log.manager.follower.thread.pool.size",
            "remote.log.manager.task.interval.ms",
            "remote.log.manager.task.retry.backoff.max.ms",
            "remote.log.manager.task.retry.backoff.ms",
            "remote.log.manager.task.retry.jitter",
            "remote.log.manager.thread.pool.size",
            "remote.log.metadata.custom.metadata.max.bytes",
            "remote.log.metadata.manager.class.name",
            "remote.log.metadata.manager.class.path",
            "remote.log.metadata.manager.impl.prefix",
            "remote.log.metadata.manager.listener.name",
            "remote.log.reader.max.pending.tasks",
            "remote.log.reader.threads",
            "remote.log.storage.manager.class.name",
            "remote.log.storage.manager.class.path",
            "remote.log.storage.manager.impl.prefix",
            "remote.log.storage.system.enable",
        ],
        prefixes: &["rlmm.config.", "rsm.config."],
    },
    KafkaKeys {
        title: "Transactions",
        status: Status::NotYet,
        why: "Transactions that Kafka wrote are read; clients can not write any in this version.",
        names: &[
            "add.partitions.to.txn.retry.backoff.max.ms",
            "add.partitions.to.txn.retry.backoff.ms",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms",
            "transaction.max.timeout.ms",
            "transaction.partition.verification.enable",
            "transaction.remove.expired.transaction.cleanup.interval.ms",
            "transaction.state.log.load.buffer.size",
            "transaction.state.log.min.isr",
            "transaction.state.log.num.partitions",
            "transaction.state.log.replication.factor",
            "transaction.state.log.segment.bytes",
            "transaction.two.phase.commit.enable",
            "transactional.id.expiration.ms",
        ],
        prefixes: &[],
    },
    KafkaKeys {
        title: "Share groups",
        status: Status::NoMeaning,
        why: "Share groups do not exist here.",
        names: &[
            "group.share.assignment.interval.ms",
            "group.share.assignors",
            "group.share.delivery.count.limit",
            "group.share.heartbeat.interval.ms",
            "group.share.initialize.retry.interval.ms",
            "group.share.max.assignment.interval.ms",
            "group.share.max.delivery.count.limit",
            "group.share.max.heartbeat.interval.ms",
            "group.share.max.partition.max.record.locks",
            "group.share.max.record.lock.duration.ms",
            "group.share.max.session.timeout.ms",
            "group.share.max.share.sessions",
            "group.share.max.size",
            "group.share.min.assignment.interval.ms",
            "group.share.min.delivery.count.limit",
            "group.share.min.heartbeat.interval.ms",
            "group.share.min.partition.max.record.locks",
            "group.share.min.record.lock.duration.ms",
            "group.share.min.session.timeout.ms",
            "group.share.partition.max.record.locks",
            "group.share.persister.class.name",
            "group.share.record.lock.duration.ms",
            "group.share.session.timeout.ms",
            "share.coordinator.append.linger.ms",
            "share.coordinator.cached.buffer.max.bytes",
            "share.coordinator.cold.partition.snapshot.interval.ms",
            "share.coordinator.load.buffer.size",
            "share.coordinator.snapshot.update.records.per.snapshot",
            "share.coordinator.state.topic.compression.codec",
            "share.coordinator.state.topic.min.isr",
            "share.coordinator.state.topic.num.partitions",
            "share.coordinator.state.topic.prune.interval.ms",
            "share.coordinator.state.topic.replication.factor",
            "share.coordinator.state.topic.segment.bytes",
            "share.coordinator.threads",
            "share.coordinator.write.timeout.ms",
            "share.fetch.purgatory.purge.interval.requests",
        ],
        prefixes: &[],
    },
    KafkaKeys {
        title: "Streams groups",
        status: Status::NoMeaning,
        why: "Groups of the streams protocol do not exist here.",
        names: &[
            "group.streams.assignment.interval.ms",
            "group.streams.heartbeat.interval.ms",
            "group.streams.initial.rebalance.delay.ms",
            "group.streams.max.assignment.interval.ms",
            "group.streams.max.heartbeat.interval.ms",
            "group.streams.max.session.timeout.ms",
            "group.streams.max.size",
            "group.streams.max.standby.replicas",
            "group.streams.min.assignment.interval.ms",
            "group.streams.min.heartbeat.interval.ms",
            "group.streams.min.session.timeout.ms",
            "group.streams.num.standby.replicas",
            "group.streams.session.timeout.ms",
        ],
        prefixes: &[],
    },
    KafkaKeys {
        title: "Details of consumer groups",
        status: Status::NotYet,
        why: "Groups of both protocols work, and both are always on. What a regular expression matches is \
              looked at again as soon as topics change.",
        names: &[
            "group.consumer.regex.refresh.interval.ms",
            "group.coordinator.rebalance.protocols",
        ],
        prefixes: &[],
    },
    KafkaKeys {
        title: "Workings of Kafka's coordinators",
        status: Status::NoMeaning,
        why: "Here each core coordinates the groups of its own partitions.",
        names: &[
            "group.coordinator.append.linger.ms",
            "group.coordinator.background.threads",
            "group.coordinator.cached.buffer.max.bytes",
            "group.coordinator.threads",
            "offsets.commit.timeout.ms",
            "offsets.load.buffer.size",
            "offsets.topic.compression.codec",
        ],
        prefixes: &[],
    },
    KafkaKeys {
        title: "Controller quorum",
        status: Status::NotYet,
        why: "This broker is the only controller of its cluster in this version.",
        names: &[
            "broker.heartbeat.interval.ms",
            "broker.session.timeout.ms",
            "controller.performance.always.log.threshold.ms",
            "controller.performance.sample.period.ms",
            "controller.quorum.append.linger.ms",
            "controller.quorum.auto.join.enable",
            "controller.quorum.election.backoff.max.ms",
            "controller.quorum.election.timeout.ms",
            "controller.quorum.fetch.max.bytes",
            "controller.quorum.fetch.snapshot.max.bytes",
            "controller.quorum.fetch.timeout.ms",
            "controller.quorum.request.timeout.ms",
            "controller.quorum.retry.backoff.ms",
            "controller.socket.timeout.ms",
            "early.start.listeners",
            "initial.broker.registration.timeout.ms",
            "metadata.log.max.record.bytes.between.snapshots",
            "metadata.log.max.snapshot.interval.ms",
            "metadata.log.segment.bytes",
            "metadata.log.segment.ms",
            "metadata.max.idle.interval.ms",
            "metadata.max.retention.bytes",
            "metadata.max.retention.ms",
        ],
        prefixes: &[],
    },
    KafkaKeys {
        title: "Quotas",
        status: Status::NotYet,
        why: "Quotas do not exist in this version.",
        names: &[
            "alter.log.dirs.replication.quota.window.num",
            "alter.log.dirs.replication.quota.window.size.seconds",
            "client.quota.callback.class",
            "controller.quota.window.num",
            "controller.quota.window.size.seconds",
            "quota.window.num",
            "quota.window.size.seconds",
            "replication.quota.window.num",
            "replication.quota.window.size.seconds",
        ],
        prefixes: &[],
    },
    KafkaKeys {
        title: "Replication",
        status: Status::NotYet,
        why: "Replication does not exist in this version.",
        names: &[
            "auto.leader.rebalance.enable",
            "controlled.shutdown.enable",
            "cordoned.log.dirs",
            "leader.imbalance.check.interval.seconds",
            "log.dir.failure.timeout.ms",
            "replica.fetch.backoff.ms",
            "replica.fetch.max.bytes",
            "replica.fetch.min.bytes",
            "replica.fetch.response.max.bytes",
            "replica.fetch.wait.max.ms",
            "replica.high.watermark.checkpoint.interval.ms",
            "replica.selector.class",
            "replica.socket.receive.buffer.bytes",
            "replica.socket.timeout.ms",
            "request.timeout.ms",
            "security.inter.broker.protocol",
            "socket.connection.setup.timeout.max.ms",
            "socket.connection.setup.timeout.ms",
        ],
        prefixes: &[],
    },
    KafkaKeys {
        title: "Limits",
        status: Status::NotYet,
        why: "This limit is not settable in this version.",
        names: &[
            "max.incremental.fetch.session.cache.slots",
            "max.request.partition.size.limit",
        ],
        prefixes: &[],
    },
    KafkaKeys {
        title: "Purgatories",
        status: Status::NoMeaning,
        why: "Here a parked request is woken by what it waits for, and nothing needs purging.",
        names: &[
            "delete.records.purgatory.purge.interval.requests",
            "fetch.purgatory.purge.interval.requests",
            "producer.purgatory.purge.interval.requests",
        ],
        prefixes: &[],
    },
    KafkaKeys {
        title: "Classes of a JVM",
        status: Status::NoMeaning,
        why: "Classes of a JVM can not be loaded here; metrics are served at /metrics, and values such as `${file:...}` are taken as they stand.",
        names: &[
            "alter.config.policy.class.name",
            "auto.include.jmx.reporter",
            "config.providers",
            "create.topic.policy.class.name",
            "kafka.csv.metrics.reporter.enabled",
            "kafka.metrics.polling.interval.secs",
            "kafka.metrics.reporters",
            "metric.reporters",
            "metrics.num.samples",
            "metrics.recording.level",
            "metrics.sample.window.ms",
        ],
        prefixes: &["config.providers."],
    },
    KafkaKeys {
        title: "Metrics of clients",
        status: Status::NoMeaning,
        why: "This broker takes no metrics of clients.",
        names: &["telemetry.max.bytes"],
        prefixes: &[],
    },
    KafkaKeys {
        title: "Inner matters of Kafka",
        status: Status::NoMeaning,
        why: "It tunes inner workings that Kafka has and this broker has not.",
        names: &[
            "internal.metadata.delete.delay.millis",
            "internal.metadata.log.segment.bytes",
            "internal.metadata.max.batch.size.in.bytes",
            "server.max.startup.time.ms",
            "unclean.leader.election.interval.ms",
            "unstable.api.versions.enable",
            "unstable.feature.versions.enable",
        ],
        prefixes: &[],
    },
    KafkaKeys {
        title: "Removed from Kafka",
        status: Status::NoMeaning,
        why: "Kafka 4 does not have it any more.",
        names: &[
            "broker.id.generation.enable",
            "control.plane.listener.name",
            "delegation.token.master.key",
            "group.coordinator.new.enable",
            "inter.broker.protocol.version",
            "log.message.downconversion.enable",
            "log.message.format.version",
            "log.message.timestamp.difference.max.ms",
            "offsets.commit.required.acks",
            "password.encoder.cipher.algorithm",
            "password.encoder.iterations",
            "password.encoder.key.length",
            "password.encoder.keyfactory.algorithm",
            "password.encoder.old.secret",
            "password.encoder.secret",
            "quota.consumer.default",
            "quota.producer.default",
            "reserved.broker.max.id",
        ],
        prefixes: &["zookeeper."],
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{KAFKA_KEYS, find};
    use crate::property::{self, Scope};

    #[test]
    fn each_key_is_here_once_and_not_in_the_registry() {
        let mut seen = BTreeSet::new();
        for keys in KAFKA_KEYS {
            assert!(keys.names.is_sorted(), "{}", keys.title);
            assert!(keys.why.ends_with('.'), "{}", keys.why);
            for name in keys.names {
                assert!(seen.insert(*name), "{name} is here twice");
                assert!(
                    property::find(Scope::Broker, name).is_none(),
                    "{name} is in the registry now: take it out of this table"
                );
            }
        }
    }

    #[test]
    fn names_and_families_are_found() {
        let title = |name| find(name).map(|keys| keys.title);
        assert_eq!(title("ssl.keystore.location"), Some("TLS"));
        assert_eq!(title("zookeeper.connect"), Some("Removed from Kafka"));
        assert_eq!(
            title("listener.name.sasl_ssl.ssl.keystore.type"),
            Some("Authentication")
        );
        assert_eq!(title("confluent.balancer.enable"), None);
    }
}
