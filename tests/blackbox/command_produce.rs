//! `thalweg produce`: where lines come from, what they become, where they go.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Output;
use std::time::{Duration, Instant};

use crate::broker::{Broker, Options, eventually};
use crate::tool::{against, command, thalweg, with_input};

fn created(name: &str, partitions: &str) -> Broker {
    let broker = Broker::start_with(Options::default());
    let create = ["topic", "create", name, "--partitions", partitions];
    against(&broker, &create, 0);
    broker
}

fn succeeds(output: &Output) {
    assert!(output.status.success(), "{output:?}");
}

fn fails(output: &Output, code: i32, reason: &str) {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(reason), "{said}");
}

/// All records, each in this form and a line end, in order of partitions.
fn printed(broker: &Broker, topic: &str, form: &str) -> String {
    let form = format!("{form}\\n");
    let consume = ["consume", topic, "--exit-at-end", "--format", &form];
    let text = against(broker, &consume, 0);
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable(); // between partitions there is no order
    lines.join(" ")
}

#[test]
fn files_are_sent_one_after_the_other() {
    let broker = created("files", "1");
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    };
    let (first, second) = (write("1", "a\nb"), write("2", "\nc\n"));
    let produce = ["produce", "files", &first, "-", &second];
    succeeds(&with_input(&broker, &produce, b"from stdin"));
    let got = against(&broker, &["consume", "files", "--exit-at-end"], 0);
    assert_eq!(got, "a\nb\nfrom stdin\n\nc\n");
    let missing = with_input(&broker, &["produce", "files", &first, "/no/such/file"], b"");
    fails(&missing, 4, "/no/such/file");
    let got = against(&broker, &["consume", "files", "--exit-at-end"], 0);
    assert_eq!(got.lines().count(), 5, "nothing was sent: {got}");
}

/// A broker that hangs is given up when a batch was under way for so long, and not two or three times later;
/// whatever may come on stdin.
#[test]
fn a_broker_that_hangs_is_given_up_in_time() {
    // Of one that the machine held up there is another.
    let mut tries = 0..3;
    assert!(tries.any(|_| gives_up_after() < Duration::from_secs(2 * LIMIT_S)));
}

/// What comes before it hangs is taken within that, on a slow disk, too.
const LIMIT_S: u64 = 10;

/// How long a producer tries that waits for [`LIMIT_S`], from the record on that meets the broker hung.
fn gives_up_after() -> Duration {
    let broker = created("hung", "1");
    let arguments = ["produce", "hung", "--timeout", &LIMIT_S.to_string()];
    let mut child = command(&broker, &arguments).spawn().expect("it runs");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(b"a\n").expect("read");
    eventually("it is there", || {
        let got = against(&broker, &["consume", "hung", "--exit-at-end"], 0);
        (got == "a\n").then_some(())
    });
    broker.freeze();
    stdin.write_all(b"b\n").expect("read");
    let began = Instant::now();
    let output = child.wait_with_output().expect("it ends");
    let took = began.elapsed();
    fails(&output, 1, &format!("tried for {LIMIT_S} s (--timeout)"));
    drop(stdin);
    took
}

#[test]
fn keys_nulls_and_headers() {
    let broker = created("parts", "1");
    let produce = [
        "produce",
        "parts",
        "--key-separator",
        "=>",
        "--null",
        "NULL",
        "--header",
        "who=me",
        "--header",
        "note= a=b ",
    ];
    succeeds(&with_input(
        &broker,
        &produce,
        b"k=>v\nk=>NULL\nNULL=>v\n=>\n",
    ));
    let got = against(&broker, &["consume", "parts", "--exit-at-end", "--json"], 0);
    let records: Vec<serde_json::Value> = got
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let pair = |at: usize| (records[at]["key"].clone(), records[at]["value"].clone());
    assert_eq!(pair(0), ("k".into(), "v".into()));
    assert_eq!(pair(1), ("k".into(), serde_json::Value::Null));
    assert_eq!(pair(2), (serde_json::Value::Null, "v".into()));
    assert_eq!(pair(3), ("".into(), "".into()));
    let headers = serde_json::json!([
        {"name": "who", "value": "me"}, {"name": "note", "value": " a=b "}
    ]);
    assert_eq!(records[0]["headers"], headers);
    let form = ["consume", "parts", "--max-messages", "1", "--print-headers"];
    assert_eq!(against(&broker, &form, 0), "who=me,note= a=b \tv\n");
}

#[test]
fn partitioners() {
    let broker = created("spread", "3");
    let input: String = (0..9).map(|n| format!("key-12345:{n}\n")).collect();
    let count = |partitioner: &str| {
        let before = per_partition(&broker);
        let produce = [
            "produce",
            "spread",
            "--key-separator",
            ":",
            "--partitioner",
            partitioner,
        ];
        succeeds(&with_input(&broker, &produce, input.as_bytes()));
        let after = per_partition(&broker);
        let grown = (0..3).map(|p| after[&p] - before[&p]);
        grown.collect::<Vec<i64>>()
    };
    assert_eq!(count("round-robin"), [3, 3, 3]);
    let mut sticky = count("sticky");
    sticky.sort_unstable();
    assert_eq!(sticky, [0, 0, 9], "one batch");
    // Utils.murmur2 of kafka-clients 4.3.1 says -952703915 of this key.
    let mut by_key = [0, 0, 0];
    by_key[((-952_703_915_i32 & 0x7fff_ffff) % 3) as usize] = 9;
    assert_eq!(count("key"), by_key);
    let explicit = ["produce", "spread", "--partition", "3"];
    fails(&with_input(&broker, &explicit, b"x"), 4, "no partition 3");
    let both = [
        "produce",
        "spread",
        "--partition",
        "1",
        "--partitioner",
        "sticky",
    ];
    assert_eq!(with_input(&broker, &both, b"").status.code(), Some(2));
}

/// End offsets of the topic `spread`.
fn per_partition(broker: &Broker) -> BTreeMap<i64, i64> {
    let json = against(broker, &["topic", "describe", "spread", "--json"], 0);
    let topics: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let partitions = topics[0]["partitions"].as_array().expect("a list");
    let row = |p: &serde_json::Value| {
        let number = |name: &str| p[name].as_i64().expect("a number");
        (number("partition"), number("end_offset"))
    };
    partitions.iter().map(row).collect()
}

#[test]
fn what_consume_prints_as_json_can_be_produced_again() {
    let broker = created("origin", "2");
    against(
        &broker,
        &["topic", "create", "copy", "--partitions", "2"],
        0,
    );
    let lines = [
        r#"{"partition":1,"timestamp":1767225600000,"key":"k","value":"v","headers":[{"name":"h","value":null}]}"#,
        r#"{"partition":0,"timestamp":1767225600001,"key":null,"value":null}"#,
        r#"{"partition":1,"timestamp":1767225600002,"key_base64":"//4=","value_base64":"AAEC"}"#,
    ];
    let produce = ["produce", "origin", "--json"];
    succeeds(&with_input(&broker, &produce, lines.join("\n").as_bytes()));
    let consume = |topic: &str| {
        let text = against(&broker, &["consume", topic, "--exit-at-end", "--json"], 0);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let backup = consume("origin");
    assert_eq!(backup.len(), 3);
    assert!(backup[0].contains("1767225600001"), "{backup:?}");
    let produce = ["produce", "copy", "--json"];
    succeeds(&with_input(&broker, &produce, backup.join("\n").as_bytes()));
    let renamed = backup.iter().map(|l| l.replace("\"origin\"", "\"copy\""));
    assert_eq!(consume("copy"), renamed.collect::<Vec<_>>());
    let forms = ["%T %k", "%p"];
    assert_eq!(printed(&broker, "copy", forms[1]), "0 1 1");
}

#[test]
fn a_bad_line_ends_the_command_after_what_came_before_it() {
    let broker = created("lines", "1");
    let produce = ["produce", "lines", "--json"];
    let output = with_input(&broker, &produce, b"{\"value\":\"a\"}\n{\"vaule\":\"b\"}\n");
    fails(&output, 1, "line 2 of the input");
    let produce = ["produce", "lines", "--key-separator", ":"];
    fails(
        &with_input(&broker, &produce, b"k:b\nno"),
        1,
        "line 2 of the input",
    );
    assert_eq!(printed(&broker, "lines", "%v"), "a b");
}

#[test]
fn batches_carry_a_producer_id_unless_told_otherwise() {
    let mut broker = created("ids", "1");
    for flags in [&[][..], &["--no-idempotence"], &["--acks", "1"]] {
        let produce = [&["produce", "ids"], flags].concat();
        succeeds(&with_input(&broker, &produce, b"x"));
    }
    // Two batches of one producer: its second sequence number follows the first.
    let produce = ["produce", "ids", "--batch-bytes", "1"];
    succeeds(&with_input(&broker, &produce, b"x\ny\n"));
    broker.stop();
    let folder = broker.partition("ids", 0);
    let inspected = thalweg(&["inspect", "--json", folder.to_str().expect("UTF-8")]);
    let text = String::from_utf8(inspected.stdout).expect("UTF-8");
    let lines = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let batches: Vec<serde_json::Value> = lines
        .filter(|line: &serde_json::Value| line["type"] == "batch")
        .collect();
    let told: Vec<(bool, i64)> = batches
        .iter()
        .map(|b| {
            let has_id = b["producer_id"].as_i64().is_some_and(|id| id >= 0);
            (has_id, b["base_sequence"].as_i64().expect("a number"))
        })
        .collect();
    assert_eq!(
        told,
        [(true, 0), (false, -1), (false, -1), (true, 0), (true, 1)]
    );
}

#[test]
fn a_record_that_is_refused_for_its_size_names_its_line() {
    let broker = created("limited", "1");
    let limit = [
        "topic",
        "alter",
        "limited",
        "--config",
        "max.message.bytes=1000",
    ];
    against(&broker, &limit, 0);
    let large = "x".repeat(2000);
    let produce = ["produce", "limited", "--batch-bytes", "100"];
    let input = format!("a\nb\n{large}\nc\n");
    let output = with_input(&broker, &produce, input.as_bytes());
    fails(&output, 1, "thalweg: line 3 of the input: ");
    fails(&output, 1, "MESSAGE_TOO_LARGE");
    let produce = ["produce", "limited"];
    let output = with_input(&broker, &produce, input.as_bytes());
    fails(&output, 1, "thalweg: among lines 1 to 4 of the input: ");
    // The line and the record are counted alike over keys and partitions.
    broker
        .connect()
        .create_topic("many", 3, &[("max.message.bytes", "1000")]);
    let flags = ["--key-separator", ":", "--batch-bytes", "100"];
    let produce = [&["produce", "many"][..], &flags].concat();
    let input: String = (0..20).map(|n| format!("{n}:a\n")).collect();
    let output = with_input(&broker, &produce, format!("{input}k:{large}").as_bytes());
    fails(&output, 1, "thalweg: line 21 of the input: ");
}
