//! OffsetFetch: one group up to version 7, several from 8 on (KIP-709). A version below 8 is turned
//! into the later form on the way in and back on the way out. From 10 on topics come by id (KIP-848).

use std::collections::VecDeque;
use std::rc::Rc;

use thalweg_group::{Ask, OffsetsPage, Stability, VERSION_TOPIC_IDS};
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use thalweg_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use thalweg_protocol::messages::{OffsetFetchRequest, OffsetFetchResponse};
use thalweg_types::limits::{GROUPS_ASKED_AT_ONCE, OFFSET_FETCH_ROWS_PER_TURN};

use super::keep_first_of_each;
use super::parts::{Rows, parts};
use crate::groups::GroupAnswer;
use crate::growing::{Growing, Grown};
use crate::service::Call;
use crate::shard::Shard;

/// First version that asks for several groups.
const VERSION_GROUPS: i16 = 8;
/// First version with an error code for the whole group; before, it stands with each partition.
const VERSION_GROUP_ERROR: i16 = 2;

/// Answers when each group's coordinator has.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: OffsetFetchRequest,
) -> Grown<OffsetFetchResponse> {
    let wanted = match request.require_stable {
        true => Stability::Stable,
        false => Stability::Any,
    };
    let mut groups = match call.version < VERSION_GROUPS {
        true => vec![single(request)],
        false => request.groups,
    };
    // One without topics asks for all of them.
    let mut nth = 0;
    keep_first_of_each(&mut groups, call.pace(), |group| {
        nth += 1;
        (
            group.group_id.clone(),
            group.topics.is_some().then_some(nth),
        )
    })
    .await;
    let mut growing = Growing::of(&shard, &call);
    let mut answered = Vec::with_capacity(groups.len());
    let mut groups = groups.into_iter();
    loop {
        let mut asked = Vec::new();
        for group in groups.by_ref().take(GROUPS_ASKED_AT_ONCE) {
            asked.push(Fetching::begin(&shard, &call, group, wanted).await);
        }
        if asked.is_empty() {
            break;
        }
        for fetching in asked {
            answered.push(fetching.finish(&shard, &call, &mut growing).await);
        }
    }
    if call.version < VERSION_GROUPS {
        let only = answered.into_iter().next();
        return growing.into_answer(
            only.map_or_else(OffsetFetchResponse::default, |(asked, answer)| {
                flat(&asked, answer, call.version)
            }),
        );
    }
    growing.into_answer(OffsetFetchResponse {
        groups: answered.into_iter().map(|(_, answer)| answer).collect(),
        ..Default::default()
    })
}

/// One group of a request, of which its coordinator is asked a part at a time.
struct Fetching {
    asked: OffsetFetchRequestGroup,
    wanted: Stability,
    /// Topics still to be asked for, when they are named.
    parts: VecDeque<Vec<OffsetFetchRequestTopics>>,
    coming: GroupAnswer,
    /// What is said of topics that there are not.
    unknown: Vec<OffsetFetchResponseTopics>,
}

impl Fetching {
    async fn begin(
        shard: &Shard,
        call: &Call,
        mut asked: OffsetFetchRequestGroup,
        wanted: Stability,
    ) -> Fetching {
        let unknown = match call.version < VERSION_TOPIC_IDS {
            true => Vec::new(),
            false => split_off_unknown(shard, &mut asked),
        };
        let topics = asked.topics.clone().unwrap_or_default();
        let mut parts = parts(topics, OFFSET_FETCH_ROWS_PER_TURN);
        let topics = asked
            .topics
            .is_some()
            .then(|| parts.pop_front().unwrap_or_default());
        let ask = Ask::FetchOffsets(part(&asked, topics), wanted, None);
        let coming = shard.ask_group(&asked.group_id, call, ask).await;
        Fetching {
            asked,
            wanted,
            parts,
            coming,
            unknown,
        }
    }

    /// The request and its answer.
    async fn finish(
        self,
        shard: &Shard,
        call: &Call,
        growing: &mut Growing,
    ) -> (OffsetFetchRequestGroup, OffsetFetchResponseGroup) {
        let Fetching {
            asked,
            wanted,
            mut parts,
            mut coming,
            unknown,
        } = self;
        let mut answer = OffsetFetchResponseGroup {
            group_id: asked.group_id.clone(),
            ..Default::default()
        };
        loop {
            let rest = match coming.get::<OffsetsPage>().await {
                Ok(page) if page.group.error_code == 0 => {
                    growing.grow(weight(&page.group)).await;
                    append(&mut answer.topics, page.group.topics);
                    page.rest
                }
                // Also when that is said of a later part: what is known by then would pass for all.
                refused => {
                    answer.topics.clear();
                    answer.error_code =
                        refused.map_or_else(ErrorCode::code, |page| page.group.error_code);
                    break;
                }
            };
            let topics = match (&rest, parts.pop_front()) {
                (None, None) => break,
                (_, topics) => topics,
            };
            let ask = Ask::FetchOffsets(part(&asked, topics), wanted, rest);
            coming = shard.ask_group(&asked.group_id, call, ask).await;
        }
        if answer.error_code == 0 {
            answer.topics.extend(unknown);
        }
        shard.count_error(call.key, answer.error_code);
        (asked, answer)
    }
}

/// The group with these of its topics; `None` for all that it has committed for.
fn part(
    of: &OffsetFetchRequestGroup,
    topics: Option<Vec<OffsetFetchRequestTopics>>,
) -> OffsetFetchRequestGroup {
    OffsetFetchRequestGroup {
        group_id: of.group_id.clone(),
        member_id: of.member_id.clone(),
        member_epoch: of.member_epoch,
        topics,
    }
}

impl Rows for OffsetFetchRequestTopics {
    type Row = i32;

    fn rows(&mut self) -> &mut Vec<i32> {
        &mut self.partition_indexes
    }

    fn with(&self, rows: Vec<i32>) -> OffsetFetchRequestTopics {
        OffsetFetchRequestTopics {
            name: self.name.clone(),
            topic_id: self.topic_id,
            partition_indexes: rows,
        }
    }
}

/// Adds what a later part told: its first topic may be the last one so far.
fn append(topics: &mut Vec<OffsetFetchResponseTopics>, more: Vec<OffsetFetchResponseTopics>) {
    for topic in more {
        match topics.last_mut() {
            Some(last) if last.name == topic.name && last.topic_id == topic.topic_id => {
                last.partitions.extend(topic.partitions);
            }
            Some(_) | None => topics.push(topic),
        }
    }
}

/// Bytes, roughly.
fn weight(group: &OffsetFetchResponseGroup) -> usize {
    let row =
        |row: &OffsetFetchResponsePartitions| 64 + row.metadata.as_ref().map_or(0, String::len);
    let topic = |topic: &OffsetFetchResponseTopics| {
        topic.name.len() + topic.partitions.iter().map(row).sum::<usize>()
    };
    group.topics.iter().map(topic).sum()
}

/// Gives topics that are asked for by id their names, and takes out those that there are not.
fn split_off_unknown(
    shard: &Shard,
    group: &mut OffsetFetchRequestGroup,
) -> Vec<OffsetFetchResponseTopics> {
    let view = shard.view();
    let mut unknown = Vec::new();
    for topic in group.topics.iter_mut().flatten() {
        match view.image.topic_by_id(topic.topic_id) {
            Some(known) => topic.name = known.name.to_string(),
            None => unknown.push(OffsetFetchResponseTopics {
                topic_id: topic.topic_id,
                partitions: topic
                    .partition_indexes
                    .iter()
                    .map(|index| OffsetFetchResponsePartitions {
                        partition_index: *index,
                        committed_offset: -1,
                        metadata: Some(String::new()),
                        error_code: ErrorCode::UnknownTopicId.code(),
                        ..Default::default()
                    })
                    .collect(),
                ..Default::default()
            }),
        }
    }
    if let Some(topics) = &mut group.topics {
        topics.retain(|topic| !topic.name.is_empty());
    }
    unknown
}

fn single(request: OffsetFetchRequest) -> OffsetFetchRequestGroup {
    let topics = request.topics.map(|topics| {
        let topics = topics.into_iter();
        topics
            .map(|topic| OffsetFetchRequestTopics {
                name: topic.name,
                partition_indexes: topic.partition_indexes,
                ..Default::default()
            })
            .collect()
    });
    OffsetFetchRequestGroup {
        group_id: request.group_id,
        topics,
        ..Default::default()
    }
}

fn flat(
    asked: &OffsetFetchRequestGroup,
    answer: OffsetFetchResponseGroup,
    version: i16,
) -> OffsetFetchResponse {
    let mut topics: Vec<OffsetFetchResponseTopic> = answer
        .topics
        .into_iter()
        .map(|topic| OffsetFetchResponseTopic {
            name: topic.name,
            partitions: topic
                .partitions
                .into_iter()
                .map(|p| OffsetFetchResponsePartition {
                    partition_index: p.partition_index,
                    committed_offset: p.committed_offset,
                    committed_leader_epoch: p.committed_leader_epoch,
                    metadata: p.metadata,
                    error_code: p.error_code,
                })
                .collect(),
        })
        .collect();
    if answer.error_code != 0 && version < VERSION_GROUP_ERROR {
        topics = refused(asked, answer.error_code);
    }
    OffsetFetchResponse {
        topics,
        error_code: answer.error_code,
        ..Default::default()
    }
}

fn refused(asked: &OffsetFetchRequestGroup, code: i16) -> Vec<OffsetFetchResponseTopic> {
    let topics = asked.topics.iter().flatten();
    let row = |index: &i32| OffsetFetchResponsePartition {
        partition_index: *index,
        committed_offset: -1,
        committed_leader_epoch: -1,
        metadata: Some(String::new()),
        error_code: code,
    };
    topics
        .map(|topic| OffsetFetchResponseTopic {
            name: topic.name.clone(),
            partitions: topic.partition_indexes.iter().map(row).collect(),
        })
        .collect()
}
