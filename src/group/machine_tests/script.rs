//! The language of scenarios: one command per line, `name key=value ...`. Clients have names; a
//! member's id is shown as its client's name, and asked for by it.

use std::collections::BTreeMap;

use bytes::Bytes;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::describe_groups_response::DescribedGroup;
use thalweg_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use thalweg_protocol::messages::leave_group_request::MemberIdentity;
use thalweg_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use thalweg_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use thalweg_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use thalweg_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use thalweg_protocol::messages::{
    HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, OffsetCommitRequest,
    OffsetDeleteRequest, SyncGroupRequest,
};

use thalweg_types::{ProducerId, TimestampMs, TopicId};

use super::beats;
use super::world::{Logged, World, show};
use crate::{
    Answer, Ask, Caller, Committed, GroupQuery, GroupSettings, Migration, Outcome, Record,
    Settings, Stability, Token,
};

pub(super) struct Script {
    world: World,
    /// Client name of each token, and what it asked.
    asked: Vec<String>,
    /// Member id of each client.
    ids: BTreeMap<String, String>,
    notes: Vec<String>,
    /// Topic ids as of the last commit: what a core sees that is behind.
    seen: BTreeMap<String, TopicId>,
}

type Words<'a> = BTreeMap<&'a str, &'a str>;

/// Runs a scenario and returns it with what happened under each command.
pub(super) fn run(text: &str) -> String {
    let mut script = Script {
        world: World::new(settings(&Words::new())),
        asked: Vec::new(),
        ids: BTreeMap::new(),
        notes: Vec::new(),
        seen: BTreeMap::new(),
    };
    let mut out = String::new();
    for line in text.lines().filter(|line| !line.starts_with("    ")) {
        out.push_str(line);
        out.push('\n');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        script.command(line);
        for happened in script.happened() {
            out.push_str(&format!("    {happened}\n"));
        }
    }
    out
}

impl Script {
    fn command(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let verb = words.next().unwrap_or_default();
        let words: Words<'_> = words
            .map(|word| word.split_once('=').unwrap_or((word, "")))
            .collect();
        match verb {
            "settings" => {
                self.world = World::new(settings(&words));
                self.ids.clear();
            }
            // What is set for each group from now on.
            "of-groups" => self.world.topics.of_groups.set(of_groups(&words)),
            "in-transaction" => self.in_transaction(&words),
            "marker" => {
                let marker = Logged::Marker(producer(&words), outcome(&words));
                self.world.logged(marker);
            }
            "bytes" => {
                let bytes = self.world.machine.tally().bytes;
                self.notes.push(format!("{bytes} bytes"));
            }
            // What the other coordinators of the core hold.
            "others" => {
                let bytes = first(&words).parse().expect("bytes");
                self.world.machine.note_others(bytes);
            }
            "pass" => {
                let ms: u64 = first(&words).parse().expect("milliseconds");
                self.world.pass_to(self.world.now + ms);
            }
            "written" if self.world.writes.is_empty() => {
                self.notes.push("nothing is on its way".into())
            }
            "written" => self.world.commit_write(),
            "failed" => {
                let wanted = first(&words);
                let code = ErrorCode::ALL.iter().find(|code| code.name() == wanted);
                self.world.fail_writes(*code.expect("a code"));
            }
            "clock" => self.world.skew = first(&words).parse().expect("milliseconds"),
            "restart" => {
                self.world.restart();
            }
            // Who held the id before goes on under another name.
            "rename" => {
                for (old, new) in &words {
                    let id = self.ids.remove(*old).expect("has an id");
                    self.ids.insert((*new).to_owned(), id);
                }
            }
            "removed" => {
                self.world.remove_topic(first(&words));
                self.world.tell_removed(first(&words));
            }
            "removed-unseen" => self.world.remove_topic(first(&words)),
            "sized" => {
                let (name, count) = first(&words).split_once('-').expect("t-5");
                self.world
                    .topics
                    .size(name, count.parse().expect("a count"));
            }
            "made" => self.world.make_topic(first(&words)),
            "replaced" => {
                self.world.make_topic(first(&words));
                self.world.tell_removed(first(&words));
            }
            verb => self.ask(verb, &words),
        }
    }

    fn ask(&mut self, verb: &str, words: &Words<'_>) {
        let client = words.get("by").copied().unwrap_or("admin").to_owned();
        let group = words.get("group").copied().unwrap_or("g").to_owned();
        let version: i16 = words.get("version").map_or(9, |v| v.parse().expect("i16"));
        let generation_id = words.get("gen").map_or(-1, |g| g.parse().expect("i32"));
        let instance = words.get("instance").map(|id| (*id).to_owned());
        let member_id = match words.get("member") {
            Some(id) => (*id).to_owned(),
            None => self.ids.get(&client).cloned().unwrap_or_default(),
        };
        let ask = match verb {
            "join" => Ask::Join(join(words, group, member_id, instance)),
            "sync" => Ask::Sync(SyncGroupRequest {
                group_id: group,
                generation_id,
                member_id,
                group_instance_id: instance,
                protocol_name: words.get("protocol").map(|p| (*p).to_owned()),
                assignments: self.shares(words),
                ..Default::default()
            }),
            "heartbeat" => Ask::Heartbeat(HeartbeatRequest {
                group_id: group,
                generation_id,
                member_id,
                group_instance_id: instance,
            }),
            "leave" => Ask::Leave(LeaveGroupRequest {
                group_id: group,
                members: vec![MemberIdentity {
                    member_id,
                    group_instance_id: instance,
                    ..Default::default()
                }],
                ..Default::default()
            }),
            "commit" => {
                let mut request = commit(words, group, member_id, generation_id);
                request.group_instance_id = instance;
                Ask::Commit(self.with_topic_ids(request, words))
            }
            "fetch" => self.fetch(words, group, member_id, generation_id),
            "delete-offset" => Ask::DeleteOffsets(delete_offset(words, group)),
            "list" => {
                let named = |key| -> Vec<String> {
                    let word = words.get(key).map(|word| (*word).to_owned());
                    word.into_iter().collect()
                };
                Ask::List(GroupQuery::new(&named("state"), &named("type")), None)
            }
            "describe" => Ask::Describe(group, None),
            "beat" => {
                let id = match member_id.as_str() {
                    "" if !words.contains_key("member") => client.clone(),
                    _ => member_id,
                };
                let request = beats::beat(words, group, id, &self.world.topics);
                Ask::ConsumerHeartbeat(request)
            }
            "describe-newer" => Ask::ConsumerDescribe(group, None),
            "delete" => Ask::Delete(group),
            other => panic!("no command {other}"),
        };
        let caller = Caller {
            client_id: client.clone(),
            client_host: "/127.0.0.1".to_owned(),
            version,
        };
        let token = Token(self.asked.len() as u64);
        self.asked.push(client);
        self.world.ask(&caller, ask, token);
    }

    /// Offsets of a transaction come into the log; `ends` for ends of offsets.
    fn in_transaction(&mut self, words: &Words<'_>) {
        let group = words.get("group").copied().unwrap_or("g").to_owned();
        let request = commit(words, group, String::new(), -1);
        for topic in self.with_topic_ids(request, words).topics {
            for asked in topic.partitions {
                let committed = Committed {
                    offset: asked.committed_offset,
                    leader_epoch: asked.committed_leader_epoch,
                    metadata: asked.committed_metadata.unwrap_or_default().into(),
                    at: self.world.wall(),
                    expires: TimestampMs::NONE,
                    topic_id: topic.topic_id,
                };
                let record = Record::Offset {
                    group: words.get("group").copied().unwrap_or("g").into(),
                    topic: topic.name.as_str().into(),
                    partition: asked.partition_index,
                    value: (!words.contains_key("ends")).then_some(committed),
                };
                self.world
                    .logged(Logged::InTransaction(producer(words), record));
            }
        }
    }

    /// With `seen` the topics are those of the last commit: so asks a core that is behind.
    fn with_topic_ids(
        &mut self,
        mut request: OffsetCommitRequest,
        words: &Words<'_>,
    ) -> OffsetCommitRequest {
        for topic in &mut request.topics {
            let known = match words.get("seen") {
                Some(_) => self.seen.get(&topic.name).copied(),
                None => self.world.topics.id(&topic.name),
            };
            topic.topic_id = known.unwrap_or_default();
            self.seen.insert(topic.name.clone(), topic.topic_id);
        }
        request
    }

    fn fetch(&self, words: &Words<'_>, group_id: String, member_id: String, epoch: i32) -> Ask {
        if let Some(topic) = words.get("seen") {
            return self.fetch_seen(group_id, topic);
        }
        let wanted = match words.contains_key("stable") {
            true => Stability::Stable,
            false => Stability::Any,
        };
        let topics = words.get("of").map(|topic| {
            vec![OffsetFetchRequestTopics {
                name: (*topic).to_owned(),
                partition_indexes: vec![0, 1],
                ..Default::default()
            }]
        });
        let group = OffsetFetchRequestGroup {
            group_id,
            topics,
            member_id: words.contains_key("gen").then_some(member_id),
            member_epoch: epoch,
        };
        Ask::FetchOffsets(group, wanted, None)
    }

    fn fetch_seen(&self, group_id: String, topic: &str) -> Ask {
        let group = OffsetFetchRequestGroup {
            group_id,
            topics: Some(vec![OffsetFetchRequestTopics {
                name: topic.to_owned(),
                topic_id: self.seen[topic],
                partition_indexes: vec![0, 1],
            }]),
            ..Default::default()
        };
        Ask::FetchOffsets(group, Stability::Any, None)
    }

    fn shares(&self, words: &Words<'_>) -> Vec<SyncGroupRequestAssignment> {
        let Some(shares) = words.get("shares") else {
            return Vec::new();
        };
        let pairs = shares.split(',').filter_map(|pair| pair.split_once(':'));
        pairs
            .map(|(client, share)| SyncGroupRequestAssignment {
                member_id: self.ids.get(client).cloned().unwrap_or_default(),
                assignment: match share.split_once('!') {
                    Some((topic, partitions)) => beats::share(topic, partitions),
                    None => Bytes::copy_from_slice(share.as_bytes()),
                },
            })
            .collect()
    }

    /// Lines for what happened since the last command, in order of kind.
    fn happened(&mut self) -> Vec<String> {
        let mut lines = std::mem::take(&mut self.notes);
        for (token, answer) in std::mem::take(&mut self.world.answers) {
            let client = self.asked[token.0 as usize].clone();
            if let Answer::Join(joined) = &answer
                && !joined.member_id.is_empty()
                && joined.member_id.starts_with(&client)
            {
                self.ids.insert(client.clone(), joined.member_id.clone());
            }
            if let Answer::ConsumerHeartbeat(beat) = &answer
                && let Some(id) = &beat.member_id
            {
                self.ids.insert(client.clone(), id.clone());
            }
            lines.push(format!("{client}: {}", self.show(&answer)));
        }
        for records in std::mem::take(&mut self.world.written) {
            for line in show(&records, &|id| self.name(id)) {
                lines.push(format!("write {line}"));
            }
        }
        lines
    }

    fn name(&self, id: &str) -> String {
        let known = self.ids.iter().find(|(_, known)| **known == *id);
        known.map_or_else(
            || {
                // Without the UUID, where there is one.
                let end = id.len().checked_sub(37);
                end.and_then(|end| id.get(..end)).unwrap_or(id).to_owned()
            },
            |(name, _)| name.clone(),
        )
    }

    fn show(&self, answer: &Answer) -> String {
        let code = |code: i16| ErrorCode::from_code(code).map_or("?", ErrorCode::name);
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        match answer {
            Answer::Join(a) if a.error_code != 0 => format!("join {}", code(a.error_code)),
            Answer::Join(a) => {
                let members: Vec<String> = a
                    .members
                    .iter()
                    .map(|m| format!("{}:{}", self.name(&m.member_id), text(&m.metadata)))
                    .collect();
                let skips = if a.skip_assignment { " skips" } else { "" };
                format!(
                    "join generation {} {} led by {} {members:?}{skips}",
                    a.generation_id,
                    a.protocol_name.as_deref().unwrap_or("-"),
                    self.name(&a.leader),
                )
            }
            Answer::Sync(a) => {
                let share = match a.assignment.starts_with(b"\0") {
                    true => beats::show_share(&a.assignment),
                    false => text(&a.assignment),
                };
                format!("sync {} {share:?}", code(a.error_code))
            }
            Answer::Heartbeat(a) => format!("heartbeat {}", code(a.error_code)),
            Answer::Leave(a) => {
                let rows: Vec<&str> = a.members.iter().map(|m| code(m.error_code)).collect();
                format!("leave {} {rows:?}", code(a.error_code))
            }
            Answer::Commit(a) => {
                let rows = a.topics.iter().flat_map(|t| &t.partitions);
                let rows: Vec<&str> = rows.map(|p| code(p.error_code)).collect();
                format!("commit {rows:?}")
            }
            Answer::FetchOffsets(page) => {
                let a = &page.group;
                let mut rows = Vec::new();
                for topic in &a.topics {
                    for p in &topic.partitions {
                        let place = format!("{}-{}", topic.name, p.partition_index);
                        rows.push(match p.error_code {
                            0 => format!("{place}={}", p.committed_offset),
                            other => format!("{place} {}", code(other)),
                        });
                    }
                }
                format!("fetch {} {rows:?}", code(a.error_code))
            }
            Answer::DeleteOffsets(a) => {
                let rows = a.topics.iter().flat_map(|t| &t.partitions);
                let rows: Vec<&str> = rows.map(|p| code(p.error_code)).collect();
                format!("delete-offset {} {rows:?}", code(a.error_code))
            }
            Answer::List(Ok(page)) => {
                let groups = page.groups.iter();
                let rows: Vec<String> = groups
                    .map(|g| format!("{} {} {}", g.group_id, g.group_state, g.group_type))
                    .collect();
                format!("list {rows:?}")
            }
            Answer::List(Err(error)) => format!("list {}", error.name()),
            Answer::Describe(page) => self.show_described(&page.group),
            Answer::ConsumerHeartbeat(a) => beats::show_beat(a),
            Answer::ConsumerDescribe(page) => beats::show_described(&page.group),
            Answer::Delete(a) => format!("delete {}", code(a.error_code)),
        }
    }

    fn show_described(&self, a: &DescribedGroup) -> String {
        let code = ErrorCode::from_code(a.error_code).map_or("?", ErrorCode::name);
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let members: Vec<String> = a
            .members
            .iter()
            .map(|m| {
                let (sub, share) = (text(&m.member_metadata), text(&m.member_assignment));
                format!("{}:{sub}:{share}", self.name(&m.member_id))
            })
            .collect();
        format!(
            "describe {} {} {:?} {members:?}",
            code, a.group_state, a.protocol_data
        )
    }
}

/// Settings of a coordinator; Kafka's where nothing is said, except that what changes is shared out at once.
fn settings(words: &Words<'_>) -> Settings {
    let mut settings = Settings::default();
    let number = |key: &str| -> Option<usize> { words.get(key).and_then(|n| n.parse().ok()) };
    settings.group_size_max = number("size").unwrap_or(settings.group_size_max);
    settings.offsets_check_interval_ms =
        number("check").map_or(settings.offsets_check_interval_ms, |ms| ms as u64);
    settings.offsets_retention_ms =
        number("retention").map_or(settings.offsets_retention_ms, |ms| ms as i64);
    settings.group_bytes_max = number("bytes").unwrap_or(settings.group_bytes_max);
    settings.bytes_max = number("all").unwrap_or(settings.bytes_max);
    settings.consumer.size_max = number("newer").unwrap_or(usize::MAX);
    settings.consumer.assignment_ms = number("apart").map_or(0, |ms| ms as i32);
    if let Some(policy) = words.get("migration") {
        settings.consumer.migration = Migration::named(policy).expect("a policy");
    }
    settings.core_bytes_max = number("core").unwrap_or(settings.core_bytes_max);
    settings.groups_max = number("groups").unwrap_or(settings.groups_max);
    settings.pending_members_max = number("pending").unwrap_or(settings.pending_members_max);
    settings
}

fn outcome(words: &Words<'_>) -> Outcome {
    match words.contains_key("commit") {
        true => Outcome::Committed,
        false => Outcome::Aborted,
    }
}

fn of_groups(words: &Words<'_>) -> GroupSettings {
    let number = |key: &str| words.get(key).and_then(|n| n.parse().ok());
    GroupSettings {
        session_ms: number("session"),
        heartbeat_ms: number("heartbeat"),
        assignment_ms: number("apart"),
    }
}

fn producer(words: &Words<'_>) -> ProducerId {
    ProducerId(words["by"].parse().expect("a producer id"))
}

fn first<'a>(words: &Words<'a>) -> &'a str {
    words.keys().next().copied().unwrap_or_default()
}

fn number<T: std::str::FromStr>(words: &Words<'_>, key: &str, default: T) -> T {
    words
        .get(key)
        .and_then(|n| n.parse().ok())
        .unwrap_or(default)
}

fn join(
    words: &Words<'_>,
    group_id: String,
    member_id: String,
    group_instance_id: Option<String>,
) -> JoinGroupRequest {
    let said = words.get("subscribes").map(|_| beats::subscription(words));
    let protocols = words.get("protocols").copied().unwrap_or("range:m");
    let protocols = protocols
        .split(',')
        .filter_map(|pair| pair.split_once(':'))
        .map(|(name, metadata)| JoinGroupRequestProtocol {
            name: name.to_owned(),
            metadata: match &said {
                Some(said) => said.clone(),
                None => Bytes::copy_from_slice(metadata.as_bytes()),
            },
        });
    JoinGroupRequest {
        group_id,
        session_timeout_ms: number(words, "session", 10_000),
        rebalance_timeout_ms: number(words, "rebalance", 60_000),
        member_id,
        group_instance_id,
        protocol_type: words.get("type").copied().unwrap_or("consumer").to_owned(),
        protocols: protocols.collect(),
        reason: None,
    }
}

/// `t-0=5` or `t-0=5:metadata`, separated by commas, under `offsets`.
fn commit(
    words: &Words<'_>,
    group_id: String,
    member_id: String,
    generation: i32,
) -> OffsetCommitRequest {
    let offsets = words.get("offsets").copied().unwrap_or_default();
    let topics = offsets.split(',').map(|one| {
        let (place, value) = one.split_once('@').expect("t-0@5");
        let (topic, partition) = place.rsplit_once('-').expect("t-0");
        let (offset, metadata) = value.split_once(':').unwrap_or((value, ""));
        let metadata = match metadata.strip_prefix('*') {
            Some(count) => "x".repeat(count.parse().expect("a count")),
            None => metadata.to_owned(),
        };
        OffsetCommitRequestTopic {
            name: topic.to_owned(),
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: partition.parse().expect("an index"),
                committed_offset: offset.parse().expect("an offset"),
                committed_leader_epoch: 0,
                committed_metadata: Some(metadata),
            }],
            ..Default::default()
        }
    });
    OffsetCommitRequest {
        group_id,
        generation_id_or_member_epoch: generation,
        member_id,
        topics: topics.collect(),
        retention_time_ms: number(words, "retention", -1),
        ..Default::default()
    }
}

fn delete_offset(words: &Words<'_>, group_id: String) -> OffsetDeleteRequest {
    let (topic, partition) = words["of"].rsplit_once('-').expect("t-0");
    OffsetDeleteRequest {
        group_id,
        topics: vec![OffsetDeleteRequestTopic {
            name: topic.to_owned(),
            partitions: vec![OffsetDeleteRequestPartition {
                partition_index: partition.parse().expect("an index"),
            }],
        }],
    }
}
