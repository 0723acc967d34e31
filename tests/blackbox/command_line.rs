//! The subcommands that talk to a broker or read its files.

use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::batch::{plain, read_all, values};
use crate::broker::{Broker, Options};
use crate::tool::{against, refused, thalweg, with_input};

#[test]
fn it_says_its_version_and_refuses_nonsense() {
    let version = thalweg(&["--version"]);
    assert_eq!(version.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&version.stdout).starts_with("thalweg 0."));
    assert_eq!(thalweg(&[]).status.code(), Some(2));
    assert_eq!(thalweg(&["no-such-command"]).status.code(), Some(2));
    assert_eq!(thalweg(&["serve", "--shards", "0"]).status.code(), Some(2));
    assert_eq!(thalweg(&["serve", "--cores", "x"]).status.code(), Some(2));
    let far = thalweg(&["serve", "--cores", "4095"]);
    let said = String::from_utf8_lossy(&far.stderr);
    assert!(
        far.status.code() == Some(2) && said.contains("core 4095"),
        "{said}"
    );
    assert_eq!(
        thalweg(&["serve", "--set", "nothing"]).status.code(),
        Some(2)
    );
}

#[test]
fn an_unknown_property_is_named_with_its_nearest() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let data = data.to_str().expect("UTF-8");
    let output = thalweg(&["serve", "--data-dir", data, "--set", "log.segment.byte=1"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("log.segment.byte") && said.contains("log.segment.bytes"),
        "{said}"
    );
    assert!(!Path::new(data).exists(), "nothing was formatted");
}

#[test]
fn topics_by_command_line() {
    let broker = Broker::start_with(Options::default());
    against(&broker, &["topic", "create", "cli", "--partitions", "3"], 0);
    against(&broker, &["topic", "create", "cli", "--partitions", "3"], 5);
    assert!(against(&broker, &["topic", "list"], 0).contains("cli"));
    let described = against(&broker, &["topic", "describe", "cli"], 0);
    assert!(described.contains("cli"), "{described}");
    let json = against(&broker, &["topic", "describe", "cli", "--json"], 0);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert!(json.to_string().contains("\"partitions\""), "{json}");
    let json = against(&broker, &["topic", "list", "--json"], 0);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert!(json.to_string().contains("cli"), "{json}");
    against(&broker, &["topic", "describe", "missing"], 4);
    against(&broker, &["topic", "delete", "missing"], 4);
    against(&broker, &["topic", "delete", "cli"], 0);
    assert!(!against(&broker, &["topic", "list"], 0).contains("cli"));
}

#[test]
fn settings_by_command_line() {
    let broker = Broker::start_with(Options::default());
    against(&broker, &["topic", "create", "t", "--partitions", "1"], 0);
    let alter = [
        "topic",
        "alter",
        "t",
        "--partitions",
        "3",
        "--config",
        "segment.ms=60000",
    ];
    against(&broker, &alter, 0);
    let described = against(&broker, &["topic", "describe", "t"], 0);
    assert!(described.contains("partitions 3"), "{described}");
    let json = against(&broker, &["config", "describe", "topic", "t", "--json"], 0);
    let settings: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(settings[0]["name"], "segment.ms");
    assert_eq!(settings[0]["source"], "topic");
    assert_eq!(settings.as_array().map(Vec::len), Some(1));
    let live = [
        "config",
        "alter",
        "broker",
        "1",
        "--set",
        "message.max.bytes=5000",
    ];
    against(&broker, &live, 0);
    let told = against(&broker, &["config", "describe", "broker", "1"], 0);
    assert!(told.contains("broker, live"), "{told}");
    let at_start = ["config", "alter", "broker", "--set", "log.dirs=/x"];
    against(&broker, &at_start, 1);
    against(&broker, &["config", "describe", "topic", "nowhere"], 4);
    against(&broker, &["config", "describe", "topic"], 2);
    against(&broker, &["config", "alter", "topic", "t"], 2);
    against(&broker, &["topic", "alter", "t", "--partitions", "2"], 1);
}

#[test]
fn owners_of_settings_by_command_line() {
    let broker = Broker::start_with(Options::default());
    let everyone = ["config", "describe", "broker-default", "--all", "--json"];
    against(&broker, &everyone, 0);
    against(&broker, &["config", "describe", "broker-default", "1"], 2);
    against(&broker, &["config", "describe", "broker-logger"], 2);
    let group = ["config", "describe", "group", "g", "--json"];
    assert_eq!(against(&broker, &group, 0).trim(), "[]");
    let setting = "consumer.session.timeout.ms=50000";
    against(
        &broker,
        &["config", "alter", "group", "g", "--set", setting],
        0,
    );
    let told = against(&broker, &group, 0);
    assert!(told.contains("consumer.session.timeout.ms"), "{told}");
    // Without a name, all groups that have settings.
    let all = ["config", "describe", "group"];
    let told = against(&broker, &all, 0);
    assert!(told.starts_with("Group g\n"), "{told}");
    assert!(told.contains("consumer.session.timeout.ms"), "{told}");
    let told = against(&broker, &[&all[..], &["--json"]].concat(), 0);
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told[0]["name"], "g");
    assert_eq!(told[0]["settings"][0]["value"], "50000");
    let setting = "consumer.session.timeout.ms=1";
    let change = ["config", "alter", "group", "g", "--set", setting];
    let (_, said) = refused(&broker, &change, 1);
    assert!(said.contains("group g"), "{said}");
}

#[test]
fn lists_of_settings_by_command_line() {
    let broker = Broker::start_with(Options::default());
    against(&broker, &["topic", "create", "t", "--partitions", "1"], 0);
    let item = "cleanup.policy=compact";
    against(
        &broker,
        &["config", "alter", "topic", "t", "--append", item],
        0,
    );
    let json = against(&broker, &["config", "describe", "topic", "t", "--json"], 0);
    assert!(json.contains("\"delete,compact\""), "{json}");
    against(
        &broker,
        &["config", "alter", "topic", "t", "--subtract", item],
        0,
    );
    let clear = [
        "config",
        "alter",
        "topic",
        "t",
        "--delete",
        "cleanup.policy",
    ];
    against(&broker, &clear, 0);
    // What is not set any more, or never was, can not be deleted again.
    let (_, said) = refused(&broker, &clear, 1);
    assert!(
        said.contains("cleanup.policy is not set for topic t"),
        "{said}"
    );
    against(
        &broker,
        &["topic", "alter", "t", "--delete-config", "nope"],
        1,
    );
    let json = against(
        &broker,
        &["config", "describe", "topic", "t", "--all", "--json"],
        0,
    );
    let settings: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let of = |name: &str| {
        let all = settings.as_array().expect("a list");
        all.iter().find(|s| s["name"] == name).expect(name).clone()
    };
    assert_eq!(of("cleanup.policy")["value"], "delete");
    assert_eq!(of("cleanup.policy")["type"], "list");
    assert!(of("segment.ms")["documentation"].is_string());
}

#[test]
fn nobody_there_is_exit_code_3() {
    // Port 1 of the loopback: nobody listens there on a test machine.
    let output = thalweg(&["topic", "list", "--bootstrap-server", "127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(output.stdout.is_empty());
    let said = String::from_utf8_lossy(&output.stderr);
    let advises =
        said.contains("127.0.0.1:1: Connection refused") && said.contains("--bootstrap-server");
    assert!(advises, "{said}");
}

#[test]
fn bootstrap_servers_are_tried_in_turn_and_need_a_port() {
    let broker = Broker::start_with(Options::default());
    let list = format!("127.0.0.1:1,{}", broker.address());
    let output = thalweg(&["topic", "list", "--bootstrap-server", &list]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let output = thalweg(&["topic", "list", "--bootstrap-server", "127.0.0.1"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("write 127.0.0.1:9092"), "{said}");
}

#[test]
fn the_timeout_covers_the_first_connection() {
    // It accepts (the kernel does) and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("bound").to_string();
    let began = Instant::now();
    let output = thalweg(&[
        "topic",
        "list",
        "--bootstrap-server",
        &address,
        "--timeout",
        "1",
    ]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[test]
fn one_offline_topic_does_not_hide_the_others() {
    let mut broker = Broker::start_with(Options::default());
    for name in ["bad", "good"] {
        against(&broker, &["topic", "create", name, "--partitions", "1"], 0);
    }
    broker.stop();
    let segment = broker.partition("bad", 0).join("00000000000000000000.log");
    std::fs::remove_file(&segment).expect("a segment");
    std::fs::create_dir(&segment).expect("something else in its place");
    broker.start_again();
    let (told, said) = refused(&broker, &["topic", "describe"], 1);
    assert!(
        told.contains("Topic bad") && told.contains("Topic good"),
        "{told}"
    );
    assert!(said.contains("bad-0") && !said.contains("good-0"), "{said}");
    let alone = against(&broker, &["topic", "describe", "good"], 0);
    assert!(alone.contains("Topic good"), "{alone}");
}

#[test]
fn completions_for_each_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let output = thalweg(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let script = String::from_utf8_lossy(&output.stdout);
        assert!(script.contains("bootstrap-server"), "{shell}");
    }
    assert_eq!(thalweg(&["completions", "tcsh"]).status.code(), Some(2));
}

#[test]
fn lines_go_in_and_come_out() {
    let broker = Broker::start_with(Options::default());
    against(
        &broker,
        &["topic", "create", "lines", "--partitions", "2"],
        0,
    );
    let text: String = (0..1_000)
        .map(|number| format!("line {number}\n"))
        .collect();
    let output = with_input(
        &broker,
        &["produce", "lines", "--partition", "1"],
        text.as_bytes(),
    );
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty(), "nothing for machines to read");
    let consume = ["consume", "lines", "--partition", "1", "--exit-at-end"];
    let consumed = against(&broker, &consume, 0);
    assert_eq!(consumed, text);
    against(&broker, &["consume", "missing", "--exit-at-end"], 4);
}

#[test]
fn keys_codecs_and_positions_by_command_line() {
    let broker = Broker::start_with(Options::default());
    against(
        &broker,
        &["topic", "create", "keyed", "--partitions", "1"],
        0,
    );
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let produce = [
            "produce",
            "keyed",
            "--key-separator",
            ":",
            "--compression",
            codec,
        ];
        let output = with_input(&broker, &produce, format!("{codec}:value\n").as_bytes());
        assert!(output.status.success(), "{output:?}");
    }
    let consume = [
        "consume",
        "keyed",
        "--exit-at-end",
        "--print-offset",
        "--print-key",
    ];
    let got = against(&broker, &consume, 0);
    let wanted =
        "0\tnone\tvalue\n1\tgzip\tvalue\n2\tsnappy\tvalue\n3\tlz4\tvalue\n4\tzstd\tvalue\n";
    assert_eq!(got, wanted);
    let later = [
        "consume",
        "keyed",
        "--exit-at-end",
        "--from",
        "3",
        "--max-messages",
        "1",
        "--json",
    ];
    let got = against(&broker, &later, 0);
    let record: serde_json::Value = serde_json::from_str(&got).expect("one JSON object");
    assert_eq!(
        (&record["offset"], &record["key"]),
        (&3.into(), &"lz4".into())
    );
    let from_end = ["consume", "keyed", "--exit-at-end", "--from", "end"];
    assert_eq!(against(&broker, &from_end, 0), "");
}

#[test]
fn inspect_reads_files_and_finds_damage() {
    let mut broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("inspected", 1, &[]);
    for number in 0..10 {
        client.append(&topic, 0, plain(&[format!("{number}")]));
    }
    assert_eq!(values(&read_all(&mut client, &topic, 0, 0)).len(), 10);
    broker.stop();
    let folder = broker.partition("inspected", 0);
    let folder = folder.to_str().expect("UTF-8");
    let whole = thalweg(&["inspect", "--verify", folder]);
    assert_eq!(whole.status.code(), Some(0), "{whole:?}");
    let data = broker.data();
    let all = thalweg(&[
        "inspect",
        "--verify",
        "--json",
        data.to_str().expect("UTF-8"),
    ]);
    assert_eq!(all.status.code(), Some(0), "{all:?}");
    assert_eq!(
        thalweg(&["inspect", "/no/such/file"]).status.code(),
        Some(4)
    );

    let segment = Path::new(folder).join("00000000000000000000.log");
    let mut bytes = std::fs::read(&segment).expect("the segment");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&segment, bytes).expect("the segment");
    let damaged = thalweg(&["inspect", "--verify", segment.to_str().expect("UTF-8")]);
    assert_eq!(damaged.status.code(), Some(1), "{damaged:?}");
}

#[test]
fn log_levels_by_command_line() {
    let mut broker = Broker::start_with(Options::default());
    let describe = ["config", "describe", "broker-logger", "1", "--json"];
    let level = |broker: &Broker, logger: &str| {
        let json = against(broker, &describe, 0);
        let rows: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let rows = rows.as_array().expect("a list");
        let row = rows.iter().find(|row| row["name"] == logger);
        let row = row.unwrap_or_else(|| panic!("no logger {logger}: {json}"));
        assert_eq!(row["source"], "logger, live");
        row["value"].as_str().expect("a level").to_owned()
    };
    let alter = |broker: &Broker, change: &[&str], code| {
        refused(
            broker,
            &[&["config", "alter", "broker-logger", "1"], change].concat(),
            code,
        )
    };
    assert_eq!(level(&broker, "root"), "INFO");
    let debug = ["--set", "thalweg_net=DEBUG"];
    let dry = [&debug[..], &["--validate-only"]].concat();
    alter(&broker, &dry, 0);
    assert_eq!(level(&broker, "thalweg_net"), "INFO");
    alter(&broker, &debug, 0);
    assert_eq!(level(&broker, "thalweg_net"), "DEBUG");
    assert_eq!(level(&broker, "thalweg_storage"), "INFO");
    // The commands' own connections end, and that is now told.
    broker.wait_for_log("connection closed");
    alter(&broker, &["--delete", "thalweg_net"], 0);
    assert_eq!(level(&broker, "thalweg_net"), "INFO");
    let (_, said) = alter(&broker, &["--set", "no.such=INFO"], 1);
    assert!(said.contains("no.such"), "{said}");
    let (_, said) = alter(&broker, &["--set", "root=LOUD"], 1);
    assert!(said.contains("LOUD"), "{said}");
    assert_eq!(level(&broker, "root"), "INFO");
    broker.stop();
}
