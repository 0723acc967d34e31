//! `thalweg consume`: where it begins, and as a member of a group.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use thalweg_protocol::records::Codec;

use crate::batch::compressed;
use crate::broker::{Broker, Options, eventually, is_long};
use crate::tool::{Running, against, refused, with_input};

/// A broker whose groups do not wait for more members, with one topic.
fn with_topic(name: &str, partitions: &str) -> Broker {
    let broker = Broker::start_with(Options::with(&[
        ("group.initial.rebalance.delay.ms", "0"),
        ("offsets.topic.num.partitions", "4"),
        ("group.consumer.min.heartbeat.interval.ms", "100"),
        ("group.consumer.heartbeat.interval.ms", "100"),
        ("group.consumer.assignment.interval.ms", "0"),
    ]));
    let create = ["topic", "create", name, "--partitions", partitions];
    against(&broker, &create, 0);
    broker
}

fn produce(broker: &Broker, topic: &str, lines: &[&str]) {
    let output = with_input(broker, &["produce", topic], lines.join("\n").as_bytes());
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn positions_by_offset_and_time() {
    let broker = with_topic("t", "1");
    let lines: Vec<String> = (1..=4)
        .map(|day| {
            let ms = 1_767_225_600_000_i64 + (day - 1) * 86_400_000; // 2026-01-01 and on
            format!("{{\"value\":\"day {day}\",\"timestamp\":{ms}}}\n")
        })
        .collect();
    let output = with_input(
        &broker,
        &["produce", "t", "--json"],
        lines.concat().as_bytes(),
    );
    assert!(output.status.success(), "{output:?}");
    let from = |flag: &str, at: &str| {
        let text = against(&broker, &["consume", "t", "--exit-at-end", flag, at], 0);
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(from("--offset", "earliest").len(), 4);
    assert_eq!(from("--offset", "latest").len(), 0);
    assert_eq!(from("--offset", "3"), ["day 4"]);
    assert_eq!(from("--from", "2"), ["day 3", "day 4"]);
    assert_eq!(from("--offset", "@1767398400000"), ["day 3", "day 4"]);
    assert_eq!(from("--offset", "@2026-01-03"), ["day 3", "day 4"]);
    assert_eq!(
        from("--offset", "@2026-01-03T01:00+01:00"),
        ["day 3", "day 4"]
    );
    assert_eq!(from("--offset", "@2026-01-03T00:00:00.001Z"), ["day 4"]);
    assert_eq!(from("--offset", "@2026-02-01").len(), 0);
    against(&broker, &["consume", "t", "--offset", "@yesterday"], 2);
    against(&broker, &["consume", "t", "--offset=-1"], 2);
}

#[test]
fn an_offset_that_is_not_there() {
    let broker = with_topic("t", "1");
    produce(&broker, "t", &["a", "b"]);
    let beyond = ["consume", "t", "--offset", "99", "--max-messages", "2"];
    let (_, said) = refused(&broker, &beyond, 1);
    assert!(
        said.contains("OFFSET_OUT_OF_RANGE (the log begins"),
        "{said}"
    );
    let reset = [&beyond[..], &["--offset-reset", "earliest"]].concat();
    assert_eq!(against(&broker, &reset, 0), "a\nb\n");
    let none = [&beyond[..], &["--offset-reset", "none"]].concat();
    refused(&broker, &none, 1);
    // Whether it is to end at the end makes no difference to that.
    let ending = ["consume", "t", "--offset", "99", "--exit-at-end"];
    let (_, said) = refused(&broker, &ending, 1);
    assert!(said.contains("beyond the end of t-0, which is 2"), "{said}");
    let reset = [&ending[..], &["--offset-reset", "earliest"]].concat();
    assert_eq!(against(&broker, &reset, 0), "a\nb\n");
    let at_end = ["consume", "t", "--offset", "2", "--exit-at-end"];
    assert_eq!(against(&broker, &at_end, 0), "");
}

#[test]
fn a_group_goes_on_where_it_was() {
    let broker = with_topic("t", "2");
    produce(&broker, "t", &["a", "b", "c", "d", "e"]);
    let member = ["consume", "t", "--group", "g", "--exit-at-end"];
    let began = Instant::now();
    let some = [&member[..], &["--max-messages", "2"]].concat();
    let first = against(&broker, &some, 0);
    assert_eq!(first.lines().count(), 2, "{first}");
    let rest = against(&broker, &member, 0);
    let mut all: Vec<&str> = first.lines().chain(rest.lines()).collect();
    all.sort_unstable();
    assert_eq!(all, ["a", "b", "c", "d", "e"], "each once");
    assert_eq!(against(&broker, &member, 0), "");
    produce(&broker, "t", &["f"]);
    assert_eq!(against(&broker, &member, 0), "f\n");
    // A member that does not leave holds up the next one for the session timeout.
    let took = began.elapsed();
    assert!(took < Duration::from_secs(40), "{took:?}");
    let other = ["consume", "t", "--group", "other", "--exit-at-end"];
    assert_eq!(against(&broker, &other, 0).lines().count(), 6);
}

#[test]
fn where_a_new_group_begins() {
    let broker = with_topic("t", "1");
    produce(&broker, "t", &["a"]);
    let member = |group, reset| {
        [
            "consume",
            "t",
            "--group",
            group,
            "--exit-at-end",
            "--offset-reset",
            reset,
        ]
    };
    let (_, said) = refused(&broker, &member("none", "none"), 1);
    assert!(said.contains("no committed offset for t-0"), "{said}");
    assert_eq!(against(&broker, &member("late", "latest"), 0), "");
    assert_eq!(against(&broker, &member("early", "earliest"), 0), "a\n");
    let both = ["consume", "t", "--group", "g", "--partition", "0"];
    against(&broker, &both, 2);
    against(
        &broker,
        &["consume", "t", "--group", "g", "--offset", "1"],
        2,
    );
    against(&broker, &["consume", "missing", "--group", "g"], 4);
}

/// Two members read everything between them, and one goes on alone with what the other leaves.
#[test]
fn members_share_and_inherit() {
    share_and_inherit(&[], &[]);
}

#[test]
fn rp_111_cooperative_members_share_and_inherit() {
    // The short form is a group with Java's consumer, in tests/foreign.
    if !is_long() {
        return;
    }
    share_and_inherit(&COOPERATIVE, &COOPERATIVE);
}

const COOPERATIVE: [&str; 2] = ["--assignor", "cooperative-sticky"];
const NEWER: [&str; 2] = ["--group-protocol", "consumer"];

#[test]
fn rp_113_members_of_the_newer_protocol_share_and_inherit() {
    share_and_inherit(
        &NEWER,
        &[&NEWER[..], &["--group-remote-assignor", "range"]].concat(),
    );
}

#[test]
fn rp_113_a_classic_member_shares_with_one_of_the_newer_protocol() {
    share_and_inherit(&NEWER, &COOPERATIVE);
    if is_long() {
        share_and_inherit(&NEWER, &[]);
        share_and_inherit(&COOPERATIVE, &NEWER);
        share_and_inherit(&[], &NEWER);
    }
}

/// A member whose heartbeats come often: a tenth of its session apart, or as the broker says.
fn quick<'a>(member: &[&'a str]) -> Vec<&'a str> {
    match member.starts_with(&NEWER) {
        true => member.to_vec(),
        false => [member, &["--session-timeout", "10000"]].concat(),
    }
}

/// The first member stays, the second comes and goes.
fn share_and_inherit(first: &[&str], second: &[&str]) {
    let broker = with_topic("t", "2");
    let arguments = ["consume", "t", "--group", "g", "--print-partition"];
    let send = |number: usize, partition: &str| {
        let flags = ["produce", "t", "--partition", partition];
        let output = with_input(&broker, &flags, number.to_string().as_bytes());
        assert!(output.status.success(), "{output:?}");
    };
    let (first, second) = (quick(first), quick(second));
    let one = Running::start(&broker, &[&arguments, &first[..]].concat());
    send(0, "0");
    send(1, "1");
    let mut seen = vec![one.line(), one.line()];
    let two = Running::start(&broker, &[&arguments, &second[..]].concat());
    // Until the second member has its share.
    let mut sent = 2;
    let mut by_two = eventually("the second member reads", || {
        send(sent, "0");
        send(sent + 1, "1");
        sent += 2;
        Some(two.lines_so_far()).filter(|lines| !lines.is_empty())
    });
    let (status, last) = two.stop();
    assert!(status.success(), "{status}");
    by_two.extend(last);
    // What nobody has read yet is read by the one that stays, within a heartbeat or two.
    seen.extend(by_two);
    while !(0..sent).all(|n| seen.iter().any(|l| l.ends_with(&format!("\t{n}")))) {
        seen.push(one.line());
    }
    send(sent, "0");
    send(sent + 1, "1");
    while !(0..sent + 2).all(|n| seen.iter().any(|l| l.ends_with(&format!("\t{n}")))) {
        seen.push(one.line());
    }
    let (status, _) = one.stop();
    assert!(status.success(), "{status}");
    // Both committed and left: nothing comes again.
    let rest = ["consume", "t", "--group", "g", "--exit-at-end"];
    assert_eq!(against(&broker, &rest, 0), "");
}

/// A group survives the kill of its broker, without losing or moving back.
#[test]
fn a_member_outlives_its_broker() {
    let mut broker = with_topic("t", "1");
    produce(&broker, "t", &["a", "b"]);
    let member = ["consume", "t", "--group", "g", "--exit-at-end"];
    assert_eq!(against(&broker, &member, 0), "a\nb\n");
    produce(&broker, "t", &["c"]);
    broker.kill();
    broker.start_again();
    assert_eq!(against(&broker, &member, 0), "c\n");
}

#[test]
fn rp_112_a_static_member_of_the_newer_protocol_comes_back_to_its_share() {
    let broker = with_topic("t", "1");
    produce(&broker, "t", &["a"]);
    let instance = ["--group-instance-id", "one", "--print-offset"];
    let member = [&["consume", "t", "--group", "g"][..], &NEWER, &instance].concat();
    let one = Running::start(&broker, &member);
    assert_eq!(one.line(), "0\ta");
    let (_, said) = refused(&broker, &member, 1);
    assert!(said.contains("UNRELEASED_INSTANCE_ID"), "{said}");
    let (status, _) = one.stop();
    assert!(status.success(), "{status}");
    // Its share waits for it, and so nobody else gets it.
    let other = [
        &["consume", "t", "--group", "g", "--exit-at-end"][..],
        &NEWER,
    ]
    .concat();
    produce(&broker, "t", &["b"]);
    assert_eq!(against(&broker, &other, 0), "");
    let again = Running::start(&broker, &member);
    assert_eq!(again.line(), "1\tb");
}

#[test]
fn what_the_newer_protocol_has_no_use_for_is_refused() {
    fn with<'a>(flags: &[&'a str]) -> Vec<&'a str> {
        [&["consume", "t", "--group", "g"][..], flags].concat()
    }
    let broker = with_topic("t", "1");
    let (_, said) = refused(&broker, &with(&["--group-remote-assignor", "range"]), 2);
    assert!(said.contains("--group-protocol consumer"), "{said}");
    let (_, said) = refused(&broker, &with(&[&NEWER[..], &COOPERATIVE].concat()), 2);
    assert!(said.contains("--group-remote-assignor"), "{said}");
    let silence = [&NEWER[..], &["--session-timeout", "10000"]].concat();
    let (_, said) = refused(&broker, &with(&silence), 2);
    assert!(said.contains("consumer.session.timeout.ms"), "{said}");
    let (_, said) = refused(&broker, &with(&["--session-timeout", "5"]), 1);
    assert!(said.contains("INVALID_SESSION_TIMEOUT"), "{said}");
    assert!(said.contains("group.min.session.timeout.ms"), "{said}");
    let unknown = [&NEWER[..], &["--group-remote-assignor", "best"]].concat();
    let (_, said) = refused(&broker, &with(&unknown), 1);
    assert!(said.contains("UNSUPPORTED_ASSIGNOR"), "{said}");
}

/// BI-14: such a batch comes from a broker with other limits; this one refuses it.
#[test]
fn bi_14_a_batch_that_expands_too_far_is_not_called_damaged() {
    let mut broker = with_topic("t", "1");
    broker.kill();
    let zeros = "\0".repeat(20 << 20);
    let mut batch = compressed(Codec::Zstd, &[zeros]);
    batch[12..16].fill(0); // the leader epoch, which is outside the checksum
    let segment = broker.partition("t", 0).join("00000000000000000000.log");
    let file = OpenOptions::new().write(true).open(segment);
    file.and_then(|file| file.write_all_at(&batch, 0))
        .expect("the segment takes it");
    broker.start_again();
    produce(&broker, "t", &["behind"]);
    let (told, said) = refused(&broker, &["consume", "t", "--exit-at-end"], 1);
    assert_eq!(told, "");
    assert!(said.contains("t-0 at offset 0 expands beyond"), "{said}");
    assert!(said.contains("another client"), "{said}");
    assert!(said.contains("not damaged"), "{said}");
    let behind = ["consume", "t", "--exit-at-end", "--offset", "1"];
    assert_eq!(against(&broker, &behind, 0), "behind\n");
}

#[test]
fn rows_before_a_damaged_batch_are_printed() {
    let broker = with_topic("t", "1");
    produce(&broker, "t", &["a"]);
    produce(&broker, "t", &["b"]);
    let file = broker.partition("t", 0).join("00000000000000000000.log");
    let mut bytes = std::fs::read(&file).expect("a segment");
    *bytes.last_mut().expect("records") ^= 1;
    std::fs::write(&file, bytes).expect("the segment");
    let (told, said) = refused(&broker, &["consume", "t", "--exit-at-end"], 1);
    assert_eq!(told, "a\n");
    assert!(said.contains("damaged batch in t-0 at offset 1"), "{said}");
}
