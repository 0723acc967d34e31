//! Assignors against the documentation of Kafka's, against random groups, and their bytes.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Assignor, Shares, Subscriber, Subscription, TopicPartition, decode_assignment,
    decode_subscription, encode_assignment, encode_subscription,
};

fn subscriber(member_id: &str, topics: &[&str]) -> Subscriber {
    Subscriber {
        member_id: member_id.to_owned(),
        topics: topics.iter().map(|t| (*t).to_owned()).collect(),
        generation: -1,
        ..Subscriber::default()
    }
}

fn of(topic: &str, partitions: &[i32]) -> Vec<TopicPartition> {
    let with_topic = |p: &i32| (topic.to_owned(), *p);
    partitions.iter().map(with_topic).collect()
}

fn counts(topics: &[(&str, i32)]) -> BTreeMap<String, i32> {
    topics.iter().map(|(t, n)| ((*t).to_owned(), *n)).collect()
}

/// The example of the documentation of Kafka's `RangeAssignor`.
#[test]
fn ranges_are_contiguous_and_the_first_get_more() {
    let members = [
        subscriber("C1", &["t0", "t1"]),
        subscriber("C0", &["t0", "t1"]),
    ];
    let shares = Assignor::Range.share_out(&members, &counts(&[("t0", 3), ("t1", 3)]));
    assert_eq!(
        shares["C0"],
        [of("t0", &[0, 1]), of("t1", &[0, 1])].concat()
    );
    assert_eq!(shares["C1"], [of("t0", &[2]), of("t1", &[2])].concat());
}

#[test]
fn static_members_keep_their_place_whatever_their_ids() {
    let named = |id: &str, instance: &str| Subscriber {
        instance_id: Some(instance.to_owned()),
        ..subscriber(id, &["t"])
    };
    for ids in [["x", "y"], ["y", "x"]] {
        let members = [
            subscriber("a", &["t"]),
            named(ids[0], "i2"),
            named(ids[1], "i1"),
        ];
        let shares = Assignor::Range.share_out(&members, &counts(&[("t", 3)]));
        assert_eq!(shares[ids[1]], of("t", &[0]));
        assert_eq!(
            (&shares[ids[0]], &shares["a"]),
            (&of("t", &[1]), &of("t", &[2]))
        );
    }
}

/// The examples of the documentation of Kafka's `RoundRobinAssignor`.
#[test]
fn round_robin_goes_on_where_the_last_topic_ended() {
    let members = [
        subscriber("C0", &["t0", "t1"]),
        subscriber("C1", &["t0", "t1"]),
    ];
    let shares = Assignor::RoundRobin.share_out(&members, &counts(&[("t0", 3), ("t1", 3)]));
    assert_eq!(shares["C0"], [of("t0", &[0, 2]), of("t1", &[1])].concat());
    assert_eq!(shares["C1"], [of("t0", &[1]), of("t1", &[0, 2])].concat());
    let members = [
        subscriber("C0", &["t0"]),
        subscriber("C1", &["t0", "t1"]),
        subscriber("C2", &["t0", "t1", "t2"]),
    ];
    let three = counts(&[("t0", 1), ("t1", 2), ("t2", 3)]);
    let shares = Assignor::RoundRobin.share_out(&members, &three);
    assert_eq!(shares["C0"], of("t0", &[0]));
    assert_eq!(shares["C1"], of("t1", &[0]));
    assert_eq!(
        shares["C2"],
        [of("t1", &[1]), of("t2", &[0, 1, 2])].concat()
    );
}

/// The first example of the documentation of Kafka's `StickyAssignor`: C1 leaves.
#[test]
fn survivors_keep_what_they_have() {
    let topics = ["t0", "t1", "t2", "t3"];
    let has = |id: &str, owned: [Vec<TopicPartition>; 3]| Subscriber {
        owned: owned.concat(),
        generation: 1,
        ..subscriber(id, &topics)
    };
    let members = [
        has("C0", [of("t0", &[0]), of("t1", &[1]), of("t3", &[0])]),
        has("C2", [of("t1", &[0]), of("t2", &[1]), of("t3", &[1])]),
    ];
    let two_each = counts(&topics.map(|t| (t, 2)));
    let shares = Assignor::Sticky.share_out(&members, &two_each);
    for member in &members {
        let kept = member
            .owned
            .iter()
            .all(|of| shares[&member.member_id].contains(of));
        assert!(kept && shares[&member.member_id].len() == 4, "{shares:?}");
    }
}

#[test]
fn of_two_claims_the_younger_counts_and_equal_ones_do_not() {
    let has = |id: &str, generation, owned: &[i32]| Subscriber {
        owned: of("t", owned),
        generation,
        ..subscriber(id, &["t"])
    };
    let two = counts(&[("t", 2)]);
    let members = [has("a", 3, &[0, 1]), has("b", 4, &[1])];
    let shares = Assignor::Sticky.share_out(&members, &two);
    assert_eq!(
        (&shares["a"], &shares["b"]),
        (&of("t", &[0]), &of("t", &[1]))
    );
    let members = [has("a", 4, &[0, 1]), has("b", 4, &[0, 1])];
    let shares = Assignor::Sticky.share_out(&members, &two);
    assert_eq!(shares["a"].len(), 1, "{shares:?}");
}

#[test]
fn rp_111_cooperation_takes_a_round_to_give_up_and_one_to_take() {
    let two = counts(&[("t", 2)]);
    let mut first = subscriber("a", &["t"]);
    first.owned = of("t", &[0, 1]);
    first.generation = 1;
    let second = subscriber("b", &["t"]);
    let shares = Assignor::CooperativeSticky.share_out(&[first.clone(), second.clone()], &two);
    assert_eq!(
        (&shares["a"], &shares["b"]),
        (&of("t", &[0]), &of("t", &[]))
    );
    first.owned = of("t", &[0]);
    let shares = Assignor::CooperativeSticky.share_out(&[first, second], &two);
    assert_eq!(
        (&shares["a"], &shares["b"]),
        (&of("t", &[0]), &of("t", &[1]))
    );
}

#[test]
fn bytes_there_and_back() {
    let topics = vec!["a".to_owned(), "bc".to_owned()];
    let share = [of("a", &[0, 2]), of("b", &[1])].concat();
    for assignor in Assignor::ALL {
        let bytes = encode_subscription(assignor, &topics, &share, 7).unwrap();
        let read = decode_subscription(&bytes).unwrap();
        assert_eq!((&read.topics, read.generation), (&topics, Some(7)));
        assert_eq!(read.owned.is_empty(), !assignor.is_cooperative());
        let member = Subscriber::new("m", None, read, assignor);
        let remembers = matches!(assignor, Assignor::Sticky | Assignor::CooperativeSticky);
        assert_eq!(member.owned == share, remembers, "{assignor:?}");
        assert_eq!(member.generation, if remembers { 7 } else { -1 });
        for cut in 0..bytes.len() - 2 {
            assert_eq!(decode_subscription(&bytes[..cut]), None, "{cut}");
        }
    }
    let assignment = encode_assignment(&share).unwrap();
    assert_eq!(decode_assignment(&assignment), Some(share));
    assert_eq!(decode_assignment(b""), Some(Vec::new()));
    for cut in 1..assignment.len() - 4 {
        assert_eq!(decode_assignment(&assignment[..cut]), None, "{cut}");
    }
    let long = vec!["x".repeat(40_000)];
    assert!(encode_subscription(Assignor::Range, &long, &[], -1).is_err());
}

/// Bytes as other clients write them.
#[test]
fn older_and_newer_forms_are_read() {
    let of_version = |bytes: &[u8]| decode_subscription(bytes);
    let plain = Subscription {
        topics: vec!["a".to_owned()],
        ..Subscription::default()
    };
    // Version 0, which ends with the user data.
    let oldest = b"\0\0\0\0\0\x01\0\x01a\xff\xff\xff\xff";
    assert_eq!(of_version(oldest), Some(plain.clone()));
    // A version of the future, with more behind.
    let newest = b"\0\x09\0\0\0\x01\0\x01a\xff\xff\xff\xff\0\0\0\0\xff\xff\xff\xff\xff\xffmore";
    assert_eq!(of_version(newest), Some(plain));
    assert_eq!(of_version(b"\xff\xff\0\0\0\0"), None);
    // Version 0 of sticky's user data has no generation.
    let with_share = b"\0\0\0\0\0\x01\0\x01a\0\0\0\x0f\0\0\0\x01\0\x01a\0\0\0\x01\0\0\0\x03";
    let read = of_version(with_share).unwrap();
    let member = Subscriber::new("m", None, read, Assignor::Sticky);
    assert_eq!((member.owned, member.generation), (of("a", &[3]), -1));
    // Cooperative members of before KIP-792 tell the generation in the user data only.
    let told = b"\0\x01\0\0\0\x01\0\x01a\0\0\0\x04\0\0\0\x05\0\0\0\0";
    let member = Subscriber::new(
        "m",
        None,
        of_version(told).unwrap(),
        Assignor::CooperativeSticky,
    );
    assert_eq!(member.generation, 5);
}

/// Numbers that look random, the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

/// Topics with their numbers of partitions, and members; all subscribe to all, or each to some.
fn random_group(dice: &mut Dice, is_mixed: bool) -> (Vec<Subscriber>, BTreeMap<String, i32>) {
    let names = ["t0", "t1", "t2", "t3"];
    let topics: Vec<(&str, i32)> = names[..1 + dice.below(4)]
        .iter()
        .map(|name| (*name, dice.below(9) as i32))
        .collect();
    let members = (0..1 + dice.below(7)).map(|n| {
        let wanted: Vec<&str> = names
            .into_iter()
            .filter(|_| !is_mixed || dice.below(3) > 0)
            .collect();
        subscriber(&format!("m{n}"), &wanted)
    });
    (members.collect(), counts(&topics))
}

/// The rules as sentences: each partition that somebody wants has one owner, who wants it.
fn check_complete(shares: &Shares, members: &[Subscriber], partitions: &BTreeMap<String, i32>) {
    let wants = |id: &str, topic: &String| {
        members
            .iter()
            .any(|m| m.member_id == id && m.topics.contains(topic))
    };
    let mut given = BTreeSet::new();
    for (id, share) in shares {
        for one in share {
            assert!(wants(id, &one.0), "{id} does not want {one:?}");
            assert!(given.insert(one.clone()), "{one:?} twice");
        }
    }
    for (topic, count) in partitions {
        let is_wanted = members.iter().any(|m| m.topics.contains(topic));
        for partition in 0..*count {
            let has_owner = given.contains(&(topic.clone(), partition));
            assert_eq!(has_owner, is_wanted, "{topic}-{partition}");
        }
    }
}

/// No partition can go to somebody who would still have fewer than its owner before.
fn check_even(shares: &Shares, members: &[Subscriber]) {
    for share in shares.values() {
        for (topic, _) in share {
            for other in members.iter().filter(|m| m.topics.contains(topic)) {
                let less = shares[&other.member_id].len();
                assert!(less + 1 >= share.len(), "{topic}: {shares:?}");
            }
        }
    }
}

#[test]
fn random_groups_get_each_partition_once_and_evenly() {
    let mut dice = Dice(848);
    for round in 0..3_000 {
        let (mut members, partitions) = random_group(&mut dice, round % 2 == 0);
        for assignor in Assignor::ALL {
            let shares = assignor.share_out(&members, &partitions);
            check_complete(&shares, &members, &partitions);
        }
        // Claims that may be old, wrong or double.
        for member in &mut members {
            member.generation = dice.below(3) as i32;
            for _ in 0..dice.below(6) {
                let topic = format!("t{}", dice.below(5));
                member.owned.push((topic, dice.below(10) as i32));
            }
        }
        let shares = Assignor::Sticky.share_out(&members, &partitions);
        check_complete(&shares, &members, &partitions);
        check_even(&shares, &members);
        // What is even already is left as it is.
        for member in &mut members {
            member.owned = shares[&member.member_id].clone();
            member.generation = 9;
        }
        assert_eq!(Assignor::Sticky.share_out(&members, &partitions), shares);
        assert_eq!(
            Assignor::CooperativeSticky.share_out(&members, &partitions),
            shares
        );
    }
}

/// How many partitions can stay at best where all subscribe to all: nobody keeps more than the smaller
/// number that an even share has, but for as many members as there are partitions over.
fn kept_at_best(owned: &[usize], partitions: usize) -> usize {
    let (each, over) = (partitions / owned.len(), partitions % owned.len());
    let more = owned.iter().filter(|n| **n > each).count();
    owned.iter().map(|n| (*n).min(each)).sum::<usize>() + more.min(over)
}

#[test]
fn as_much_stays_as_can_when_members_come_and_go() {
    let mut dice = Dice(54);
    for _ in 0..3_000 {
        let (mut members, partitions) = random_group(&mut dice, false);
        let before = Assignor::RoundRobin.share_out(&members, &partitions);
        for member in &mut members {
            member.owned = before[&member.member_id].clone();
            member.generation = 1;
        }
        members.retain(|_| dice.below(3) > 0);
        for n in 0..dice.below(3) {
            members.push(subscriber(&format!("new{n}"), &["t0", "t1", "t2", "t3"]));
        }
        if members.is_empty() {
            continue;
        }
        let shares = Assignor::Sticky.share_out(&members, &partitions);
        let owned: Vec<usize> = members.iter().map(|m| m.owned.len()).collect();
        let kept: usize = members
            .iter()
            .map(|m| {
                m.owned
                    .iter()
                    .filter(|of| shares[&m.member_id].contains(of))
                    .count()
            })
            .sum();
        let all: i32 = partitions.values().sum();
        assert_eq!(
            kept,
            kept_at_best(&owned, all as usize),
            "{members:?} {shares:?}"
        );
    }
}

#[test]
fn cooperation_ends_where_sticky_would_and_nothing_is_ever_read_twice() {
    let mut dice = Dice(429);
    for round in 0..1_000 {
        let (mut members, partitions) = random_group(&mut dice, round % 2 == 0);
        let before = Assignor::Range.share_out(&members, &partitions);
        for member in &mut members {
            member.owned = before[&member.member_id].clone();
            member.generation = 1;
        }
        let mut rounds = 0;
        loop {
            let shares = Assignor::CooperativeSticky.share_out(&members, &partitions);
            let mut has_given_up = false;
            for member in &mut members {
                let share = &shares[&member.member_id];
                for other in before.keys().filter(|id| **id != member.member_id) {
                    assert!(shares[other].iter().all(|of| !member.owned.contains(of)));
                }
                has_given_up |= member.owned.iter().any(|of| !share.contains(of));
                member.owned.clone_from(share);
            }
            rounds += 1;
            if !has_given_up {
                check_complete(&shares, &members, &partitions);
                check_even(&shares, &members);
                break;
            }
        }
        // What was held back goes to whoever has least by then, which can make another move worth while
        // where not all want the same.
        let is_mixed = round % 2 == 0;
        assert!(rounds <= if is_mixed { 4 } else { 2 }, "{rounds} rounds");
    }
}
