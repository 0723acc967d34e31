//! How a producer's batches get to the leaders, and what becomes of those that are not confirmed.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use thalweg_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use thalweg_protocol::messages::{ProduceRequest, ProduceResponse};
use thalweg_protocol::{ErrorCode, Records};
use thalweg_types::Uuid;

use super::{Acks, Delivery, Flight, Producer, Sealed};
use crate::cluster::MissingTopic;
use crate::connection::{Answer, Ticket};
use crate::error::{Advice, ClientError, Result};

/// The last version of Produce that names topics instead of giving their id.
const NEWEST_BY_NAME: i16 = 12;
/// Batches of one request, in bytes.
const REQUEST_BYTES_MAX: usize = 8 * 1024 * 1024;
const BACKOFF_MAX: Duration = Duration::from_secs(1);

impl Producer {
    /// Sends batches (at most one per partition) to their leaders, after what is in flight there.
    pub(super) fn dispatch(&mut self, batches: Vec<Sealed>) -> Result<()> {
        let mut by_leader: BTreeMap<i32, Vec<Sealed>> = BTreeMap::new();
        let mut leaderless = Vec::new();
        for batch in batches {
            let leader = match self.cluster.leader(&batch.topic, batch.partition) {
                Ok(leader) => leader,
                Err(error) if error.advice() != Advice::GiveUp => {
                    leaderless.push(batch);
                    continue;
                }
                Err(error) => {
                    self.refused = Some(batch.numbers);
                    return Err(error);
                }
            };
            let group = by_leader.entry(leader).or_default();
            let group_bytes: usize = group.iter().map(|b| b.bytes.len()).sum();
            if group_bytes + batch.bytes.len() > REQUEST_BYTES_MAX && !group.is_empty() {
                let full = std::mem::take(group);
                self.launch(leader, full)?;
            }
            by_leader.entry(leader).or_default().push(batch);
        }
        by_leader
            .into_iter()
            .try_for_each(|(leader, group)| self.launch(leader, group))?;
        // These wait for a leader without holding up the others.
        let deadline = Instant::now() + self.cluster.options().retry_for;
        for batch in leaderless {
            let before = self.cluster.set_deadline(Some(deadline));
            let found = self
                .cluster
                .retry(|c| c.leader(&batch.topic, batch.partition));
            self.cluster.set_deadline(before);
            match found {
                Ok(leader) => self.launch(leader, vec![batch])?,
                Err(error) => {
                    self.refused = Some(batch.numbers);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn launch(&mut self, leader: i32, batches: Vec<Sealed>) -> Result<()> {
        self.collect(leader)?;
        let since = Instant::now();
        match self.write(leader, &batches) {
            Ok(Some(ticket)) => {
                self.flights.insert(leader, Flight { ticket, batches });
                Ok(())
            }
            Ok(None) => {
                for batch in batches {
                    self.confirm(batch, None);
                }
                Ok(())
            }
            Err(error) => batches
                .into_iter()
                .try_for_each(|b| self.resend(leader, b, error_of(&error), since)),
        }
    }

    /// Waits for the request in flight to `leader`, if there is one.
    pub(super) fn collect(&mut self, leader: i32) -> Result<()> {
        let Some(flight) = self.flights.remove(&leader) else {
            return Ok(());
        };
        let since = Instant::now();
        let outcome = self
            .cluster
            .broker(leader)
            .and_then(|c| c.receive(flight.ticket));
        for batch in flight.batches {
            let result = match &outcome {
                Ok(response) => self.judge(response, &batch),
                Err(error) => Err(error_of(error)),
            };
            match result {
                Ok(base_offset) => self.confirm(batch, base_offset),
                Err(error) => self.resend(leader, batch, error, since)?,
            }
        }
        Ok(())
    }

    fn confirm(&mut self, batch: Sealed, base_offset: Option<i64>) {
        self.delivered.push(Delivery {
            topic: batch.topic,
            partition: batch.partition,
            base_offset,
            records: batch.records,
            bytes: batch.bytes.len(),
        });
    }

    /// Sends one batch alone, again and again, after `error`, for `retry_for` from `since` on, when it was waited for
    /// first.
    fn resend(
        &mut self,
        leader: i32,
        batch: Sealed,
        error: ClientError,
        since: Instant,
    ) -> Result<()> {
        let deadline = since + self.cluster.options().retry_for;
        let mut pause = self.cluster.options().retry_backoff;
        let (mut leader, mut error) = (leader, error);
        loop {
            if !self.cluster.prepare_retry_at(leader, &error) || Instant::now() + pause > deadline {
                self.refused = Some(batch.numbers);
                return Err(error);
            }
            thread::sleep(pause);
            pause = (pause * 2).min(BACKOFF_MAX);
            let before = self.cluster.set_deadline(Some(deadline));
            let outcome = self
                .cluster
                .leader(&batch.topic, batch.partition)
                .and_then(|found| {
                    leader = found;
                    // Another flight may be on the way to the new leader: answers come in order.
                    let ticket = self.write(leader, std::slice::from_ref(&batch))?;
                    let Some(ticket) = ticket else {
                        return Ok(None);
                    };
                    let response = self.cluster.broker(leader)?.receive(ticket)?;
                    self.judge(&response, &batch)
                });
            self.cluster.set_deadline(before);
            match outcome {
                Ok(base_offset) => {
                    self.confirm(batch, base_offset);
                    return Ok(());
                }
                Err(next) => error = next,
            }
        }
    }

    fn write(&mut self, leader: i32, batches: &[Sealed]) -> Result<Option<Ticket<ProduceRequest>>> {
        let mut request = ProduceRequest {
            acks: self.options.acks.on_the_wire(),
            timeout_ms: i32::try_from(self.options.acks_timeout.as_millis()).unwrap_or(i32::MAX),
            ..Default::default()
        };
        let mut all_have_ids = true;
        for batch in batches {
            let topic_id = self.cluster.topic(&batch.topic, MissingTopic::Refuse)?.id;
            all_have_ids &= topic_id != Uuid::ZERO;
            let data = PartitionProduceData {
                index: batch.partition,
                records: Some(Records::Extern(batch.bytes.len() as u32)),
            };
            match request
                .topic_data
                .iter_mut()
                .find(|t| t.name == batch.topic)
            {
                Some(topic) => topic.partition_data.push(data),
                None => request.topic_data.push(TopicProduceData {
                    name: batch.topic.clone(),
                    topic_id,
                    partition_data: [data].into(),
                }),
            }
        }
        let connection = self.cluster.broker(leader)?;
        let limit = if all_have_ids {
            i16::MAX
        } else {
            NEWEST_BY_NAME
        };
        let newest = connection.api_table().newest_up_to::<ProduceRequest>(limit);
        let version = match newest {
            Some(version) => version,
            None => connection.version_of::<ProduceRequest>()?,
        };
        let order = request.topic_data.iter().flat_map(|t| {
            let of_topic = |b: &&Sealed| b.topic == t.name;
            batches
                .iter()
                .filter(of_topic)
                .map(|b| &b.bytes[..])
                .collect::<Vec<_>>()
        });
        let order: Vec<&[u8]> = order.collect();
        let answer = if self.options.acks == Acks::None {
            Answer::None
        } else {
            Answer::Comes
        };
        connection.send_batches(&request, version, &order, answer)
    }

    /// Base offset that `response` gives to `batch`, if it was stored.
    fn judge(&mut self, response: &ProduceResponse, batch: &Sealed) -> Result<Option<i64>> {
        let id = self
            .cluster
            .topic(&batch.topic, MissingTopic::Refuse)
            .map_or(Uuid::ZERO, |t| t.id);
        let same = |name: &str, topic_id: Uuid| {
            if name.is_empty() {
                topic_id == id
            } else {
                name == batch.topic
            }
        };
        let answer = response
            .responses
            .iter()
            .filter(|t| same(&t.name, t.topic_id))
            .flat_map(|t| &t.partition_responses)
            .find(|p| p.index == batch.partition);
        let what = || format!("produce to {}-{}", batch.topic, batch.partition);
        let Some(answer) = answer else {
            // A topic that was created again meanwhile has another id: ask anew.
            let code = ErrorCode::UnknownTopicId as i16;
            return ClientError::check(code, what, None).map(|()| None);
        };
        if answer.error_code == ErrorCode::DuplicateSequenceNumber as i16 {
            return Ok(None); // an earlier try is in the log, too far back to say where
        }
        ClientError::check(answer.error_code, what, answer.error_message.as_deref())?;
        Ok(Some(answer.base_offset))
    }
}

/// The same failure for each of several batches.
fn error_of(error: &ClientError) -> ClientError {
    match error {
        ClientError::Timeout { address, millis } => ClientError::Timeout {
            address: address.clone(),
            millis: *millis,
        },
        ClientError::Closed { address } => ClientError::Closed {
            address: address.clone(),
        },
        ClientError::Unreachable { address, source } => ClientError::Unreachable {
            address: address.clone(),
            source: std::io::Error::new(source.kind(), source.to_string()),
        },
        ClientError::Io { address, source } => ClientError::Io {
            address: address.clone(),
            source: std::io::Error::new(source.kind(), source.to_string()),
        },
        ClientError::Refused {
            what,
            code,
            message,
        } => ClientError::Refused {
            what: what.clone(),
            code: *code,
            message: message.clone(),
        },
        ClientError::BadAnswer { .. }
        | ClientError::Encode(_)
        | ClientError::Unsupported { .. }
        | ClientError::Corrupt { .. }
        | ClientError::Expands { .. }
        | ClientError::Invalid(_) => ClientError::Invalid(error.to_string()),
    }
}
