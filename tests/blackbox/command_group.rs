//! `thalweg group`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use thalweg_protocol::messages::ConsumerGroupHeartbeatRequest;

use crate::administering::delete_records;
use crate::broker::{Broker, Options, eventually};
use crate::groups::{commit_patiently, fetch_all, join, join_request, options, with_coordinators};
use crate::tool::{Running, against, refused, thalweg, with_input};

/// A broker with topic `t` of two partitions, 10 records in the first, and what a test commits.
fn broker(options: Options, committed: &[(&str, i32, i64)]) -> Broker {
    let broker = Broker::start_with(options);
    let mut client = with_coordinators(&broker);
    client.create_topic("t", 2, &[]);
    let lines = (0..10).map(|n| format!("{n}\n")).collect::<String>();
    let sent = with_input(
        &broker,
        &["produce", "t", "--partition", "0"],
        lines.as_bytes(),
    );
    assert!(sent.status.success(), "{sent:?}");
    if !committed.is_empty() {
        commit_patiently(&mut client, "g", committed);
    }
    broker
}

fn json_of(broker: &Broker, arguments: &[&str], code: i32) -> Value {
    let text = against(broker, &[arguments, &["--json"]].concat(), code);
    serde_json::from_str(&text).expect("JSON")
}

fn offsets(broker: &Broker) -> Vec<(i32, i64)> {
    let all = fetch_all(&mut broker.connect(), "g");
    all.into_iter()
        .map(|((_, p), offset)| (p, offset))
        .collect()
}

#[test]
fn groups_are_listed_by_state_and_type_and_described_with_their_lag() {
    let broker = broker(options(), &[("t", 0, 4)]);
    let mut client = broker.connect();
    join(&mut client, "live", 4);
    let listed = json_of(&broker, &["group", "list"], 0);
    let names: Vec<&Value> = listed
        .as_array()
        .expect("a list")
        .iter()
        .map(|g| &g["name"])
        .collect();
    assert_eq!(names, ["g", "live"]);
    let empty = [
        "group",
        "list",
        "--state",
        "empty,dead",
        "--type",
        "Classic",
    ];
    let listed = json_of(&broker, &empty, 0);
    let wanted = json!([{"name": "g", "type": "classic", "state": "Empty", "protocol_type": ""}]);
    assert_eq!(listed, wanted);
    assert_eq!(
        json_of(&broker, &["group", "list", "--type", "share"], 0),
        json!([])
    );
    against(&broker, &["group", "list", "--state", "asleep"], 2);

    let described = json_of(&broker, &["group", "describe", "g"], 0);
    let line = &described[0]["offsets"][0];
    assert_eq!(
        (
            &line["committed_offset"],
            &line["end_offset"],
            &line["lag"],
            &line["metadata"]
        ),
        (&json!(4), &json!(10), &json!(6), &json!("note"))
    );
    // Nobody, or a broker of another cluster, is at the usual port.
    let (told, said) = refused(&broker, &["group", "describe", "g"], 0);
    assert!(said.contains("lag in bytes and seconds left out"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        told.contains("Group g  state Empty  type classic  members 0"),
        "{told}"
    );
    let described = json_of(
        &broker,
        &["group", "describe", "--all-groups", "--members"],
        0,
    );
    assert_eq!(described[1]["members"][0]["client_id"], "blackbox");
    assert_eq!(described[1]["offsets"], Value::Null);
    let told = against(&broker, &["group", "describe", "live", "--state"], 0);
    assert_eq!(told.lines().count(), 1, "{told}");
    let (_, said) = refused(&broker, &["group", "describe", "nobody"], 4);
    assert_eq!(said, "thalweg: group nobody does not exist\n");
    against(&broker, &["group", "describe"], 2);
}

#[test]
fn offsets_move_only_when_it_is_asked_for() {
    let broker = broker(options(), &[("t", 0, 4)]);
    let reset = |arguments: &[&str]| {
        let all = [
            &["group", "reset-offsets", "g", "--topic", "t:0"],
            arguments,
        ]
        .concat();
        let report = json_of(&broker, &all, 0);
        (
            report["executed"].clone(),
            report["offsets"][0]["new_offset"].clone(),
        )
    };
    assert_eq!(reset(&["--to-earliest"]), (json!(false), json!(0)));
    assert_eq!(offsets(&broker), [(0, 4)], "only shown");
    for (to, offset) in [
        (&["--to-latest"][..], 10),
        (&["--shift-by", "-3"], 7),
        (&["--shift-by", "100"], 10),
        (&["--to-offset", "2"], 2),
        (&["--to-current"], 2),
        (&["--to-datetime", "2020-01-01T00:00:00"], 0),
        (&["--by-duration", "P1D"], 0),
        (&["--to-datetime", "2100-01-01"], 10),
    ] {
        let told = reset(&[to, &["--execute"]].concat());
        assert_eq!(told, (json!(true), json!(offset)), "{to:?}");
        assert_eq!(offsets(&broker), [(0, offset)], "{to:?}");
    }
}

#[test]
fn offsets_move_of_some_partitions_or_of_all_that_are_committed_for() {
    let broker = broker(options(), &[("t", 0, 4)]);
    // A topic means all its partitions, and all topics those that are committed for.
    let both = [
        "group",
        "reset-offsets",
        "g",
        "--topic",
        "t",
        "--to-earliest",
        "--execute",
    ];
    against(&broker, &both, 0);
    assert_eq!(offsets(&broker), [(0, 0), (1, 0)]);
    let all = [
        "group",
        "reset-offsets",
        "g",
        "--all-topics",
        "--to-offset",
        "3",
        "--execute",
    ];
    against(&broker, &all, 0);
    assert_eq!(
        offsets(&broker),
        [(0, 3), (1, 0)],
        "within what the log has"
    );
    let shift = [
        "group",
        "reset-offsets",
        "new",
        "--topic",
        "t:1",
        "--shift-by",
        "1",
    ];
    let (_, said) = refused(&broker, &shift, 1);
    assert!(said.contains("no committed offset for t-1"), "{said}");
    against(&broker, &["group", "reset-offsets", "g", "--all-topics"], 2);
    against(&broker, &["group", "reset-offsets", "g", "--to-latest"], 2);
    let missing = [
        "group",
        "reset-offsets",
        "g",
        "--topic",
        "t:7",
        "--to-latest",
    ];
    against(&broker, &missing, 4);
}

#[test]
fn a_plan_goes_out_to_a_file_and_comes_back() {
    let broker = broker(options(), &[("t", 0, 4), ("t", 1, 0)]);
    let export = [
        "group",
        "reset-offsets",
        "g",
        "--all-topics",
        "--to-current",
        "--export",
    ];
    let (plan, said) = refused(&broker, &export, 0);
    assert_eq!(plan, "t,0,4\nt,1,0\n");
    assert!(said.contains("--execute"), "{said}");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("plan.csv");
    let path = file.to_str().expect("UTF-8");
    std::fs::write(&file, "\"t\",0,9\nother,t,0,1\n").expect("a file");
    let from = [
        "group",
        "reset-offsets",
        "g",
        "--from-file",
        path,
        "--execute",
    ];
    against(&broker, &from, 0);
    assert_eq!(offsets(&broker), [(0, 9), (1, 0)]);
    std::fs::write(&file, "t,zero,9\n").expect("a file");
    let (_, said) = refused(&broker, &from, 2);
    assert!(said.contains("line 1"), "{said}");
    std::fs::remove_file(&file).expect("it was there");
    against(&broker, &from, 4);
}

#[test]
fn a_group_with_members_is_left_alone() {
    let broker = broker(options(), &[("t", 0, 4)]);
    let reader = Running::start(&broker, &["consume", "t", "--group", "g"]);
    assert_eq!(reader.line(), "4");
    for command in [
        &[
            "group",
            "reset-offsets",
            "g",
            "--all-topics",
            "--to-earliest",
            "--execute",
        ][..],
        &[
            "group",
            "reset-offsets",
            "g",
            "new",
            "--topic",
            "t",
            "--to-earliest",
            "--execute",
        ],
        &["group", "delete", "g"],
    ] {
        let (_, said) = refused(&broker, command, 1);
        assert!(
            said.starts_with("thalweg: group g has members")
                && said.contains("remove-members g --instance-id"),
            "{said}"
        );
    }
    let forget = ["group", "delete-offsets", "g", "--topic", "t"];
    let (_, said) = refused(&broker, &forget, 1);
    assert!(said.contains("members of group g read t"), "{said}");
    assert!(fetch_all(&mut broker.connect(), "new").is_empty());
    let described = json_of(&broker, &["group", "describe", "g"], 0);
    assert_eq!(described[0]["state"], "Stable");
    assert_eq!(described[0]["members"][0]["topics"], json!(["t"]));
    assert_eq!(
        described[0]["offsets"][1]["client_id"], "thalweg",
        "reads it, no commit"
    );
    reader.stop();
    let forget = ["group", "delete-offsets", "g", "--topic", "t:1"];
    against(&broker, &forget, 4);
    let forget = json_of(
        &broker,
        &["group", "delete-offsets", "g", "--topic", "t"],
        0,
    );
    assert_eq!(forget[0]["deleted"], json!(true));
    assert!(offsets(&broker).is_empty());
}

#[test]
fn groups_are_deleted_each_by_itself() {
    let broker = broker(options(), &[("t", 0, 4)]);
    let told = json_of(&broker, &["group", "delete", "nobody", "g"], 4);
    assert_eq!(told[0]["error"], "group nobody does not exist");
    assert_eq!(
        told[1],
        json!({"name": "g", "deleted": true, "error": null})
    );
    assert_eq!(json_of(&broker, &["group", "list"], 0), json!([]));
}

#[test]
fn bi_36_names_can_not_command_a_terminal() {
    let broker = broker(options(), &[]);
    let mut client = broker.connect();
    let name = "\u{1b}[2Jevil\n";
    commit_patiently(&mut client, name, &[("t", 0, 4)]);
    let mut request = join_request(name, "");
    request.protocol_type = "\u{7}type".to_owned();
    client.call(&request, 3);
    for command in [
        &["group", "list"][..],
        &["group", "describe", "--all-groups", "--members"],
    ] {
        let told = against(&broker, command, 0);
        let is_plain = |c: char| !c.is_control() || c == '\n';
        assert!(
            told.contains("\\u{1b}[2Jevil\\n") && told.chars().all(is_plain),
            "{told:?}"
        );
    }
    let (_, said) = refused(&broker, &["group", "delete", name], 1);
    assert!(said.contains("group \\u{1b}[2Jevil\\n has"), "{said:?}");
}

#[test]
fn without_a_broker_there_are_no_groups() {
    let nowhere = ["group", "list", "--bootstrap-server", "127.0.0.1:1"];
    assert_eq!(thalweg(&nowhere).status.code(), Some(3));
}

/// `thalweg group describe g` with what the broker tells over HTTP; one line per partition.
fn lag_lines(broker: &Broker) -> Vec<Value> {
    let http = broker.metrics_address().to_string();
    let told = json_of(broker, &["group", "describe", "g", "--http", &http], 0);
    told[0]["offsets"].as_array().expect("a list").clone()
}

#[test]
fn lag_is_told_in_records_bytes_and_seconds_and_until_it_is_removed() {
    let broker = Broker::start_with(options());
    let mut client = with_coordinators(&broker);
    let topic = client.create_topic("t", 2, &[("retention.ms", "7200000")]);
    let hour_ago = SystemTime::now() - Duration::from_secs(3_600);
    let since = hour_ago
        .duration_since(UNIX_EPOCH)
        .expect("after 1970")
        .as_millis();
    let line = format!("{{\"value\": \"old\", \"timestamp\": {since}, \"partition\": 0}}\n");
    for _ in 0..3 {
        let sent = with_input(&broker, &["produce", "t", "--json"], line.as_bytes());
        assert!(sent.status.success(), "{sent:?}");
    }
    commit_patiently(&mut client, "g", &[("t", 0, 1), ("t", 1, 0)]);
    let lines = lag_lines(&broker);
    let told = |at: usize, field: &str| lines[at][field].as_f64();
    assert_eq!(
        (told(1, "lag"), told(1, "lag_bytes"), told(1, "lag_seconds")),
        (Some(0.0), Some(0.0), Some(0.0))
    );
    assert_eq!(told(1, "removal_seconds"), None, "nothing is left to lose");
    let size = broker.partition("t", 0).join("00000000000000000000.log");
    let size = std::fs::metadata(size).expect("a segment").len() as f64;
    assert_eq!(
        (told(0, "lag"), told(0, "lag_bytes")),
        (Some(2.0), Some(size * 2.0 / 3.0))
    );
    let (age, left) = (told(0, "lag_seconds"), told(0, "removal_seconds"));
    assert!(
        age.is_some_and(|s| (3_600.0..3_660.0).contains(&s)),
        "{age:?}"
    );
    assert!(
        left.is_some_and(|s| (3_540.0..=3_600.0).contains(&s)),
        "{left:?}"
    );
    for (name, value) in [("records", 2.0), ("bytes", size * 2.0 / 3.0)] {
        let name = format!("thalweg_group_lag_{name}");
        let having = ["group=\"g\"", "topic=\"t\"", "partition=\"0\""];
        assert_eq!(broker.metric(&name, &having), value, "{name}");
    }
    // What is gone counts as lost, and what is read as read.
    delete_records(&mut client, &topic, 2);
    let lines = lag_lines(&broker);
    assert_eq!(lines[0]["removal_seconds"].as_f64(), Some(0.0));
    commit_patiently(&mut client, "g", &[("t", 0, 3)]);
    assert_eq!(lag_lines(&broker)[0]["lag_seconds"].as_f64(), Some(0.0));
    let told = against(
        &broker,
        &["group", "describe", "g", "--http", "127.0.0.1:1"],
        3,
    );
    assert_eq!(told, "");
}

#[test]
fn bi_36_lag_metrics_have_a_bound_and_count_what_is_left_out() {
    let broker = Broker::start_with(options());
    let mut client = with_coordinators(&broker);
    client.create_topic("t", 3, &[]);
    for group in 0..800 {
        let name = format!("group-{group}");
        commit_patiently(&mut client, &name, &[("t", 0, 0), ("t", 1, 0), ("t", 2, 0)]);
    }
    let names = |page: &str| -> Vec<String> {
        let rows = page
            .lines()
            .filter(|line| line.starts_with("thalweg_group_lag_records{"));
        rows.map(str::to_owned).collect()
    };
    // A core that does not answer in time is left out, and asked again.
    let told = || {
        eventually("the lag of every group", || {
            let rows = names(&broker.metrics());
            let left_out = broker.metric("thalweg_group_lag_left_out", &[]);
            (rows.len() as f64 + left_out == 2_400.0).then_some(rows)
        })
    };
    let rows = told();
    assert!((1_000..=2_000).contains(&rows.len()), "{}", rows.len());
    assert_eq!(rows, told(), "always the same ones");
    // Asked for by name, each is told.
    for group in ["group-0", "group-799"] {
        let (status, told) = broker.get(&format!("/groups/{group}/lag"));
        let told: Value = serde_json::from_str(&told).expect("JSON");
        assert_eq!(
            (status, told["partitions"].as_array().map(Vec::len)),
            (200, Some(3))
        );
    }
}

#[test]
fn rebalances_are_remembered_with_their_cause() {
    let mut options = options();
    options
        .properties
        .push(("group.min.session.timeout.ms", "100".to_owned()));
    let broker = broker(options, &[("t", 0, 4)]);
    let http = broker.metrics_address().to_string();
    let history =
        |group: &str, code| json_of(&broker, &["group", "history", group, "--http", &http], code);
    assert_eq!(history("g", 0), json!([]));
    let reader = Running::start(&broker, &["consume", "t", "--group", "g"]);
    assert_eq!(reader.line(), "4");
    reader.stop();
    let told = history("g", 0);
    let fields = |at: usize| (told[at]["cause"].clone(), told[at]["generation"].clone());
    assert_eq!(fields(0), (json!("member joined"), json!(1)));
    assert_eq!(fields(1), (json!("member left"), json!(2)));
    assert_eq!(told[0]["joined"]["members"], told[1]["left"]["members"]);
    // One that joins and is never heard of again.
    let mut client = broker.connect();
    let mut request = join_request("g", "");
    request.session_timeout_ms = 100;
    client.call(&request, 3);
    let told = eventually("the silent member is out", || {
        let told = history("g", 0);
        told[2]["generation"].is_number().then_some(told)
    });
    assert_eq!(told[2]["cause"], "member joined");
    assert_eq!(
        told[2]["timed_out"]["members"],
        told[2]["joined"]["members"]
    );
    assert!(told[2]["took_ms"].as_u64() >= Some(100), "{told}");
    let table = against(&broker, &["group", "history", "g", "--http", &http], 0);
    assert!(table.contains("member left"), "{table}");
    let (_, said) = refused(&broker, &["group", "history", "nobody", "--http", &http], 4);
    assert_eq!(said, "thalweg: group nobody does not exist\n");
    let elsewhere = ["group", "history", "g", "--http", "127.0.0.1:1"];
    against(&broker, &elsewhere, 3);
}

#[test]
fn rp_113_rebalances_of_the_newer_protocol_are_remembered() {
    let broker = broker(options(), &[("t", 0, 4)]);
    let mut client = broker.connect();
    let beat = |epoch| ConsumerGroupHeartbeatRequest {
        group_id: "newer".to_owned(),
        member_id: "me".to_owned(),
        member_epoch: epoch,
        rebalance_timeout_ms: 30_000,
        subscribed_topic_names: Some(vec!["t".to_owned()]),
        topic_partitions: Some(Vec::new()),
        ..Default::default()
    };
    let joined = eventually("the coordinator has loaded", || {
        let answer = client.call(&beat(0), 1);
        (answer.error_code == 0).then_some(answer)
    });
    client.call(&beat(-1), 1);
    let http = broker.metrics_address().to_string();
    let told = json_of(&broker, &["group", "history", "newer", "--http", &http], 0);
    let last = &told
        .as_array()
        .expect("a list")
        .last()
        .expect("a rebalance");
    assert_eq!(told[0]["cause"], "member joined", "{told}");
    assert_eq!(told[0]["joined"]["members"], json!(["me"]));
    assert_eq!(told[0]["generation"], json!(joined.member_epoch), "{told}");
    assert_eq!(last["left"]["members"], json!(["me"]), "{told}");
}

#[test]
fn static_members_that_are_away_are_shown_and_removed() {
    let broker = broker(options(), &[]);
    for protocol in ["classic", "consumer"] {
        let flags = ["--group-instance-id", "one", "--group-protocol", protocol];
        let consume = ["consume", "t", "--group", protocol, "--print-offset"];
        let reader = Running::start(&broker, &[&consume[..], &flags].concat());
        assert_eq!(reader.line(), "0\t0");
        assert!(reader.stop().0.success());
        let (_, said) = refused(&broker, &["group", "delete", protocol], 1);
        let wanted = format!("thalweg group remove-members {protocol} --instance-id NAME");
        assert!(said.contains(&wanted), "{said}");
        let described = json_of(&broker, &["group", "describe", protocol, "--members"], 0);
        let member = &described[0]["members"][0];
        let is_newer = protocol == "consumer";
        assert_eq!(member["instance_id"], "one");
        assert_eq!(
            member["away"],
            if is_newer { json!(true) } else { Value::Null }
        );
        let shown = against(&broker, &["group", "describe", protocol, "--members"], 0);
        assert_eq!(shown.contains("away"), is_newer, "{shown}");
        let remove = ["group", "remove-members", protocol];
        let one = [&remove[..], &["--instance-id", "one"]].concat();
        let other = [&remove[..], &["--instance-id", "two"]].concat();
        let (_, said) = refused(&broker, &other, 4);
        assert!(said.contains("no instance two"), "{said}");
        let told = against(&broker, &one, 0);
        assert_eq!(
            told,
            format!("removed instance one from group {protocol}\n")
        );
        against(&broker, &one, 4);
        against(&broker, &[&remove[..], &["--all"]].concat(), 0);
        against(&broker, &["group", "delete", protocol], 0);
        against(&broker, &[&remove[..], &["--all"]].concat(), 4);
    }
    // One that is there joins again by itself.
    for protocol in ["classic", "consumer"] {
        let group = format!("live-{protocol}");
        let flags = ["--print-offset", "--group-protocol", protocol];
        let consume = ["consume", "t", "--group", &group];
        let live = Running::start(&broker, &[&consume[..], &flags].concat());
        assert_eq!(live.line(), "0\t0");
        let removed = json_of(&broker, &["group", "remove-members", &group, "--all"], 0);
        assert_eq!(removed[0]["removed"], true, "{removed}");
        assert_eq!(removed[0]["instance_id"], Value::Null);
    }
}
