//! Configuration files, formatting, listeners.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::{
    AlterConfigsRequest, DescribeClusterRequest, DescribeConfigsRequest, FindCoordinatorRequest,
    IncrementalAlterConfigsRequest, alter_configs_request, describe_configs_request,
    describe_configs_response, incremental_alter_configs_request,
};

use crate::batch::{plain, read_all, values};
use crate::broker::{Broker, Options, config_file};
use crate::tool::thalweg;
use crate::wire::{Connection, error, newest};

/// The keys and values of Kafka 4.x's sample, with another port, directory and id.
const KAFKAS_SAMPLE: &str = "# The keys of Kafka's sample.\n\
     process.roles=broker,controller\n\
     node.id=5\n\
     controller.quorum.bootstrap.servers=localhost:9093\n\
     listeners=PLAINTEXT://:0,CONTROLLER://:9093\n\
     inter.broker.listener.name=PLAINTEXT\n\
     advertised.listeners=PLAINTEXT://localhost:19092,CONTROLLER://localhost:9093\n\
     controller.listener.names=CONTROLLER\n\
     listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\\\n   \
         SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL\n\
     num.network.threads=3\n\
     num.io.threads=8\n\
     socket.send.buffer.bytes=102400\n\
     socket.receive.buffer.bytes=102400\n\
     socket.request.max.bytes=104857600\n\
     log.dirs=DATA\n\
     num.partitions=1\n\
     num.recovery.threads.per.data.dir=1\n\
     offsets.topic.replication.factor=1\n\
     share.coordinator.state.topic.replication.factor=1\n\
     share.coordinator.state.topic.min.isr=1\n\
     transaction.state.log.replication.factor=1\n\
     transaction.state.log.min.isr=1\n\
     log.retention.hours=168\n\
     log.segment.bytes=1073741824\n\
     log.retention.check.interval.ms=300000\n";

fn with_config(text: impl Into<String>) -> Options {
    Options {
        config: Some(text.into()),
        ..Options::default()
    }
}

/// Runs it; it must end with `code`. What it said on both streams.
fn said(command: &str, file: &Path, more: &[&str], code: i32) -> String {
    let config = [command, "--config", file.to_str().expect("UTF-8")];
    let output = thalweg(&[&config[..], more].concat());
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).expect("UTF-8");
    assert_eq!(output.status.code(), Some(code), "{more:?}: {text}");
    text
}

fn broker_setting(
    client: &mut Connection,
    id: &str,
    key: &str,
) -> describe_configs_response::DescribeConfigsResourceResult {
    let request = DescribeConfigsRequest {
        resources: vec![describe_configs_request::DescribeConfigsResource {
            resource_type: 4,
            resource_name: id.to_owned(),
            configuration_keys: Some(vec![key.to_owned()]),
        }],
        include_synonyms: true,
        include_documentation: false,
    };
    let mut response = client.call(&request, newest::<DescribeConfigsRequest>());
    response.results.remove(0).configs.remove(0)
}

fn lines_with(broker: &Broker, text: &str) -> usize {
    let log = broker.log();
    log.iter().filter(|line| line.contains(text)).count()
}

#[test]
fn kafkas_sample_runs_after_format() {
    let mut broker = Broker::start_with(with_config(KAFKAS_SAMPLE));
    let meta = std::fs::read_to_string(broker.data().join("meta.properties")).expect("formatted");
    assert!(meta.contains("node.id=5\n"), "{meta}");

    assert_eq!(lines_with(&broker, "is not bound"), 1);
    assert_eq!(lines_with(&broker, "WITHOUT AUTHENTICATION"), 1);
    for key in ["num.network.threads", "transaction.state.log.min.isr"] {
        assert_eq!(lines_with(&broker, key), 1, "{key}");
    }
    assert_eq!(
        lines_with(&broker, "properties of the file have no effect here"),
        1
    );
    assert_eq!(lines_with(&broker, "did not stop in order"), 0);

    let mut client = broker.connect();
    let told = client.metadata(&[]);
    let told: Vec<_> = told
        .brokers
        .iter()
        .map(|b| (b.node_id, &*b.host, b.port))
        .collect();
    assert_eq!(told, [(5, "localhost", 19092)]);
    let topic = client.create_topic("sampled", 2, &[]);
    client.append(&topic, 1, plain(&["x"]));

    let hours = broker_setting(&mut client, "5", "num.partitions");
    assert_eq!(hours.config_source, 4, "STATIC_BROKER_CONFIG");
    let sources: Vec<_> = hours.synonyms.iter().map(|s| s.source).collect();
    assert_eq!(sources, [4, 5]);
    let dirs = broker_setting(&mut client, "5", "log.dirs");
    assert_eq!(dirs.value.as_deref(), broker.data().to_str());

    broker.stop();
    broker.start_again();
    let mut client = broker.connect();
    assert_eq!(values(&read_all(&mut client, &topic, 1, 0)), [b"x"]);
}

/// The sample that is in every release, on another directory and port.
#[test]
fn our_own_sample_runs_without_a_warning() {
    let sample = include_str!("../../scripts/release.d/server.properties");
    let text = sample
        .replace("log.dirs=/var/lib/thalweg", "log.dirs=DATA")
        .replace("127.0.0.1:9092", "127.0.0.1:0");
    let mut broker = Broker::start_with(with_config(text));
    broker.connect().create_topic("sampled", 1, &[]);
    broker.stop();
    assert_eq!(lines_with(&broker, "WARN"), 0, "{:#?}", broker.log());
    assert!(broker.data().join("sampled-0").exists(), "it took DATA");
}

/// A broker that knew only the end of its metadata would set every partition aside.
#[test]
fn a_metadata_log_that_kafka_has_cut_behind_a_snapshot_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let file = config_file(&data, "log.dirs=DATA\nlisteners=PLAINTEXT://127.0.0.1:0\n");
    said("format", &file, &[], 0);
    let metadata = data.join("__cluster_metadata-0");
    let topic = data.join("orders-0");
    std::fs::create_dir(&metadata).expect("a folder");
    std::fs::create_dir(&topic).expect("a folder");
    let mut batch = plain(&["x"]);
    batch[..8].copy_from_slice(&500_i64.to_be_bytes());
    batch[12..16].fill(0); // the leader epoch
    std::fs::write(metadata.join("00000000000000000500.log"), &batch).expect("a segment");
    let text = said("serve", &file, &["--metrics-listen", "none"], 1);
    assert!(text.contains("begins at offset 500"), "{text}");
    assert!(text.contains("snapshot"), "{text}");
    assert!(topic.exists(), "nothing was set aside");
}

#[test]
fn with_a_file_serve_never_formats() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let file = config_file(&data, "log.dirs=DATA\nlisteners=PLAINTEXT://127.0.0.1:0\n");
    let advice = format!("thalweg format --config {}", file.display());
    let metrics = ["--metrics-listen", "none"];
    let text = said("serve", &file, &metrics, 1);
    assert!(text.contains(&advice), "{text}");
    assert!(!data.exists());
    std::fs::create_dir(&data).expect("a folder");
    let text = said("serve", &file, &metrics, 1);
    assert!(text.contains(&advice), "{text}");
    let left = std::fs::read_dir(&data).expect("a folder").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| name == ".lock"), "{left:?}");
}

/// What keeps a broker from starting is told with what to do, and in the form of the log.
#[test]
fn a_taken_port_or_directory_is_told_as_json_too() {
    let broker = Broker::start_with(Options::default());
    let (address, data) = (broker.address().to_string(), broker.data());
    let start = |listen: &str| {
        let data = data.to_str().expect("UTF-8");
        let args = ["serve", "--metrics-listen", "none", "--log-format", "json"];
        let output = thalweg(&[&args[..], &["--listen", listen, "--data-dir", data]].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        let last = said.lines().last().expect("a line");
        let last: serde_json::Value = serde_json::from_str(last).expect(last);
        assert_eq!(last["level"], "ERROR", "{said}");
        last["message"].as_str().expect("a message").to_owned()
    };
    let taken = start(&address);
    assert!(taken.contains("another process listens there"), "{taken}");
    let locked = start("127.0.0.1:0");
    assert!(locked.contains("stop the broker first"), "{locked}");
}

#[test]
fn format_gives_an_identity_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let file = config_file(&data, "node.id=3\nlog.dirs=/nowhere/else\n");
    let dir = ["--data-dir", data.to_str().expect("UTF-8")];
    let cluster = ["--cluster-id", "AAAAAAAAQACAAAAAAAAAAA"];
    let text = said(
        "format",
        &file,
        &[dir, ["--cluster-id", "short"]].concat(),
        2,
    );
    assert!(text.contains("22 characters"), "{text}");
    let first = [&dir[..], &["-t", cluster[1], "--standalone"]].concat();
    let text = said("format", &file, &first, 0);
    assert!(
        text.contains("cluster AAAAAAAAQACAAAAAAAAAAA, node 3"),
        "{text}"
    );
    let read = || std::fs::read_to_string(data.join("meta.properties")).expect("formatted");
    let meta = read();
    let text = said("format", &file, &dir, 5);
    assert!(text.contains("formatted already"), "{text}");
    said(
        "format",
        &file,
        &[&dir[..], &["--ignore-formatted"]].concat(),
        0,
    );
    let other = ["-g", "--cluster-id", "BAAAAAAAQACAAAAAAAAAAA"];
    said("format", &file, &[&dir[..], &other].concat(), 1);
    let other = ["-g", "--set", "node.id=4"];
    let text = said("format", &file, &[&dir[..], &other].concat(), 1);
    assert!(text.contains("belongs to node 3"), "{text}");
    assert_eq!(read(), meta);

    std::fs::write(data.join("meta.properties.bak"), "x").expect("a file");
    std::fs::remove_file(data.join("meta.properties")).expect("a file");
    let text = said("format", &file, &dir, 1);
    assert!(text.contains("is not empty"), "{text}");
}

#[test]
fn all_mistakes_of_a_file_come_at_once_with_their_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let text = "num.partition=2\nnode.id=x\nlog.dir=\nlisteners=SASL_SSL://h:9\n\
                confluent.balancer.enable=true\n";
    let file = config_file(&data, text);
    for command in ["serve", "format"] {
        let text = said(command, &file, &[], 2);
        for (line, word) in [
            (1, "num.partitions"),
            (2, "whole number"),
            (3, "name a directory"),
            (4, "only PLAINTEXT"),
        ] {
            let place = format!("{}:{line}: ", file.display());
            let told = text.lines().find(|told| told.contains(&place));
            let told = told.unwrap_or_else(|| panic!("line {line}: {text}"));
            assert!(told.contains(word), "{told}");
        }
        assert!(!text.contains("balancer"), "{text}");
        assert!(!data.exists());
    }
    let text = said("serve", &folder.path().join("missing"), &[], 4);
    assert_eq!(text.matches("No such file").count(), 1, "{text}");
}

#[test]
fn flags_win_over_the_file_and_foreign_keys_are_warned_of() {
    let mut options = with_config(
        "log.dirs=DATA\nlisteners=PLAINTEXT://127.0.0.1:0\nnum.partitions=4\n\
         confluent.balancer.enable=true\nmy.reporter.password=secret\nlog.preallocate=true\n",
    );
    options.properties = vec![("num.partitions", "3".to_owned())];
    let broker = Broker::start_with(options);
    for key in [
        "confluent.balancer.enable",
        "my.reporter.password",
        "log.preallocate",
    ] {
        assert_eq!(lines_with(&broker, key), 1, "{key}");
    }
    assert_eq!(lines_with(&broker, "secret"), 0);
    assert_eq!(lines_with(&broker, "WITHOUT AUTHENTICATION"), 0);
    let mut client = broker.connect();
    let partitions = broker_setting(&mut client, "1", "num.partitions");
    assert_eq!(partitions.value.as_deref(), Some("3"));
}

#[test]
fn every_address_is_refused_without_one_to_advertise() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let file = config_file(&data, "log.dirs=DATA\nlisteners=PLAINTEXT://0.0.0.0:9092\n");
    let text = said("serve", &file, &[], 2);
    let line = text
        .lines()
        .find(|line| line.starts_with("advertised.listeners=PLAINTEXT://"));
    let line = line.unwrap_or_else(|| panic!("no line to add: {text}"));
    assert!(line.ends_with(":9092"), "{line}");
    // With that line, the file is right.
    let better = format!("log.dirs=DATA\nlisteners=PLAINTEXT://0.0.0.0:9092\n{line}\n");
    let file = config_file(&data, &better);
    said("format", &file, &[], 0);
}

/// Several listeners, the way of containers and of hosts with two networks (KIP-103): each client is
/// told the address of the listener that it came by.
#[test]
fn clients_are_told_the_address_of_their_own_listener() {
    let text = "log.dirs=DATA\nlisteners=INSIDE://127.0.0.1:0,OUTSIDE://localhost:0\n\
                advertised.listeners=OUTSIDE://broker.example:19092\n\
                inter.broker.listener.name=INSIDE\n\
                listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT\n";
    let broker = Broker::start_with(with_config(text));
    let line = broker.wait_for_log("listener=\"OUTSIDE\"");
    let outside = line
        .split_whitespace()
        .find_map(|word| word.strip_prefix("address="));
    let outside: SocketAddr = outside.expect("an address").parse().expect("an address");
    assert_ne!(outside, broker.address());

    let inside = (broker.address().ip().to_string(), broker.address().port());
    let told = [inside, ("broker.example".to_owned(), 19092)];
    for (address, (host, port)) in [broker.address(), outside].into_iter().zip(told) {
        let mut client = Connection::open(address);
        let metadata = client.metadata(&[]);
        assert_eq!(metadata.brokers.len(), 1);
        let broker = &metadata.brokers[0];
        assert_eq!((&broker.host, broker.port), (&host, i32::from(port)));
        let cluster = DescribeClusterRequest {
            endpoint_type: 1,
            ..Default::default()
        };
        let cluster = client.call(&cluster, newest::<DescribeClusterRequest>());
        let broker = &cluster.brokers[0];
        assert_eq!((&broker.host, broker.port), (&host, i32::from(port)));
        let coordinator = FindCoordinatorRequest {
            coordinator_keys: vec!["g".to_owned()],
            ..Default::default()
        };
        let found = client.call(&coordinator, newest::<FindCoordinatorRequest>());
        let found = &found.coordinators[0];
        assert_eq!((&found.host, found.port), (&host, i32::from(port)));
    }
}

#[test]
fn hosts_are_resolved_and_ipv6_has_brackets() {
    let text = "log.dirs=DATA\nlisteners=PLAINTEXT://localhost:0\nbroker.rack=r1\n";
    let broker = Broker::start_with(with_config(text));
    assert!(broker.address().is_ipv4());
    let mut client = broker.connect();
    client.create_topic("named", 1, &[]);
    assert_eq!(
        client.metadata(&["named"]).brokers[0].host,
        "localhost",
        "clients are told the name, as by Kafka: the address behind it may change"
    );
    let cluster = client.call(
        &DescribeClusterRequest::default(),
        newest::<DescribeClusterRequest>(),
    );
    let racks = [
        client.metadata(&["named"]).brokers[0].rack.clone(),
        cluster.brokers[0].rack.clone(),
    ];
    assert_eq!(racks, ["r1", "r1"].map(|rack| Some(rack.to_owned())));
    if TcpListener::bind("[::1]:0").is_err() {
        eprintln!("NOT TESTED: this machine has no IPv6");
        return;
    }
    let text = "log.dirs=DATA\nlisteners=PLAINTEXT://[::1]:0\n";
    let broker = Broker::start_with(with_config(text));
    assert!(broker.address().is_ipv6());
    let mut client = broker.connect();
    client.create_topic("six", 1, &[]);
    assert_eq!(client.metadata(&["six"]).brokers[0].host, "::1");
    assert_eq!(lines_with(&broker, "WITHOUT AUTHENTICATION"), 0);

    let folder = tempfile::tempdir().expect("a folder");
    let text = "log.dirs=DATA\nlisteners=PLAINTEXT://no-such-host.invalid:0\n";
    let file = config_file(&folder.path().join("data"), text);
    let text = said("serve", &file, &["--metrics-listen", "none"], 1);
    assert!(text.contains("no-such-host.invalid"), "{text}");
}

#[test]
fn internal_topics_have_no_more_replicas_than_there_are_brokers() {
    let broker = Broker::start_with(Options::with(&[
        ("offsets.topic.replication.factor", "3"),
        ("offsets.topic.num.partitions", "2"),
    ]));
    let mut client = broker.connect();
    let request = FindCoordinatorRequest {
        key_type: 0,
        coordinator_keys: vec!["g".to_owned()],
        ..FindCoordinatorRequest::default()
    };
    let answer = client.call(&request, newest::<FindCoordinatorRequest>());
    assert_eq!(error(answer.coordinators[0].error_code), ErrorCode::None);
    let told = client.metadata(&["__consumer_offsets"]);
    let partitions = &told.topics[0].partitions;
    assert_eq!(partitions.len(), 2);
    assert!(partitions.iter().all(|p| p.replica_nodes == [1]));
}

const BROKER_LOGGER: i8 = 8;

/// Sets, or with `None` removes, the level of a logger.
fn set_level(client: &mut Connection, logger: &str, level: Option<&str>) -> (ErrorCode, String) {
    let request = IncrementalAlterConfigsRequest {
        resources: vec![incremental_alter_configs_request::AlterConfigsResource {
            resource_type: BROKER_LOGGER,
            resource_name: "1".to_owned(),
            configs: vec![incremental_alter_configs_request::AlterableConfig {
                name: logger.to_owned(),
                config_operation: i8::from(level.is_none()),
                value: level.map(str::to_owned),
            }],
        }],
        validate_only: false,
    };
    let version = newest::<IncrementalAlterConfigsRequest>();
    let row = client.call(&request, version).responses.remove(0);
    (error(row.error_code), row.error_message.unwrap_or_default())
}

/// Every logger and its level.
fn levels(client: &mut Connection) -> Vec<(String, String)> {
    let request = DescribeConfigsRequest {
        resources: vec![describe_configs_request::DescribeConfigsResource {
            resource_type: BROKER_LOGGER,
            resource_name: "1".to_owned(),
            configuration_keys: None,
        }],
        ..DescribeConfigsRequest::default()
    };
    let version = newest::<DescribeConfigsRequest>();
    let result = client.call(&request, version).results.remove(0);
    assert_eq!(error(result.error_code), ErrorCode::None);
    let rows = result.configs.into_iter();
    rows.map(|row| {
        assert_eq!(row.config_source, 6, "DYNAMIC_BROKER_LOGGER_CONFIG");
        (row.name, row.value.unwrap_or_default())
    })
    .collect()
}

#[test]
fn log_levels_change_while_the_broker_runs() {
    let closed = "connection closed";
    let mut broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let level = |client: &mut Connection, logger: &str| {
        let all = levels(client).into_iter();
        let found = all.filter(|(name, _)| name == logger);
        found.map(|(_, level)| level).collect::<Vec<_>>()
    };
    assert_eq!(level(&mut client, "root"), ["INFO"]);
    assert_eq!(level(&mut client, "thalweg_net"), ["INFO"]);
    let set = set_level(&mut client, "thalweg_net", Some("DEBUG"));
    assert_eq!(set.0, ErrorCode::None, "{}", set.1);
    assert_eq!(level(&mut client, "thalweg_net"), ["DEBUG"]);
    assert_eq!(level(&mut client, "thalweg_storage"), ["INFO"]);
    drop(broker.connect());
    broker.wait_for_log(closed);
    let debug = |line: &String| line.contains("DEBUG") && line.contains(closed);
    let set = set_level(&mut client, "thalweg_net", None);
    assert_eq!(set.0, ErrorCode::None, "{}", set.1);
    assert_eq!(level(&mut client, "thalweg_net"), ["INFO"]);
    drop(broker.connect());

    for (logger, value, code) in [
        ("no.such.logger", Some("INFO"), ErrorCode::InvalidConfig),
        ("root", Some("LOUD"), ErrorCode::InvalidConfig),
        ("root", None, ErrorCode::InvalidRequest),
    ] {
        assert_eq!(set_level(&mut client, logger, value).0, code, "{logger}");
    }
    let whole = AlterConfigsRequest {
        resources: vec![alter_configs_request::AlterConfigsResource {
            resource_type: BROKER_LOGGER,
            resource_name: "1".to_owned(),
            configs: Vec::new(),
        }],
        validate_only: false,
    };
    let answer = client.call(&whole, newest::<AlterConfigsRequest>());
    let row = &answer.responses[0];
    assert_eq!(error(row.error_code), ErrorCode::InvalidRequest);

    assert_eq!(
        set_level(&mut client, "root", Some("ERROR")).0,
        ErrorCode::None
    );
    broker.stop();
    assert_eq!(broker.log().iter().filter(|line| debug(line)).count(), 1);
    assert_eq!(lines_with(&broker, "stopping"), 0, "INFO is off");
    // Levels are of the process: the next one begins with its own.
    broker.start_again();
    assert_eq!(level(&mut broker.connect(), "root"), ["INFO"]);
}
