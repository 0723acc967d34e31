//! What the controller decides. Nothing here changes an image: each decision is records, to be made
//! durable and then replayed.

mod alter_configs;
mod cluster;
mod create;
mod delete;
mod internal;
mod partitions;
mod producer_ids;

use thalweg_config::BrokerConfig;
use thalweg_protocol::ErrorCode;
use thalweg_types::{BrokerId, TopicId};

use crate::directories::Directories;
use crate::image::Image;
use crate::record::Record;

pub(crate) use alter_configs::operation;
pub use cluster::{METADATA_VERSION, METADATA_VERSION_FEATURE, Registration, initial_records};
pub use internal::InternalTopic;
pub use producer_ids::ProducerIdBlock;

/// Draws of a random id before giving up; each fails with a chance below 2 in 64.
const ID_DRAWS_MAX: usize = 64;

/// Records to append and the answer to give once they are durable and replayed.
#[derive(Clone, PartialEq, Debug)]
#[must_use]
pub struct Decision<A> {
    /// In this order, in one batch.
    pub records: Vec<Record>,
    /// For the client.
    pub answer: A,
}

/// A refusal for one topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicRefusal {
    /// The code on the wire.
    pub code: ErrorCode,
    /// The text beside it.
    pub message: String,
}

impl TopicRefusal {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> TopicRefusal {
        TopicRefusal {
            code,
            message: message.into(),
        }
    }
}

/// Code and text of one row of an answer; the records of one that passes are added to `records`.
fn row_of(
    outcome: Result<Vec<Record>, TopicRefusal>,
    records: &mut Vec<Record>,
) -> (i16, Option<String>) {
    match outcome {
        Ok(made) => {
            records.extend(made);
            (ErrorCode::None.code(), None)
        }
        Err(refusal) => (refusal.code.code(), Some(refusal.message)),
    }
}

/// The controller of one moment: what it knows and what it draws ids from.
pub struct Controller<'a> {
    image: &'a Image,
    config: &'a BrokerConfig,
    draw: &'a mut dyn FnMut() -> [u8; 16],
    partitions_max: usize,
    /// Of the broker `local`, which decides.
    local: Option<(BrokerId, Directories)>,
}

impl<'a> Controller<'a> {
    /// A controller over `image`; `config` gives defaults, `draw` 16 fresh random bytes per call.
    pub fn new(
        image: &'a Image,
        config: &'a BrokerConfig,
        draw: &'a mut dyn FnMut() -> [u8; 16],
    ) -> Controller<'a> {
        Controller {
            image,
            config,
            draw,
            partitions_max: usize::MAX,
            local: None,
        }
    }

    /// Gives new replicas of `local` one of these log directories. Without this, a broker with several
    /// is left to say itself where they are.
    #[must_use]
    pub fn with_directories(self, local: BrokerId, directories: Directories) -> Controller<'a> {
        Controller {
            local: Some((local, directories)),
            ..self
        }
    }

    /// Refuses topics and partitions that would make more than `partitions_max` in all: each needs a
    /// file handle, and a broker without handles serves nobody.
    #[must_use]
    pub fn with_partitions_max(self, partitions_max: usize) -> Controller<'a> {
        Controller {
            partitions_max,
            ..self
        }
    }

    /// Partitions that there is room for.
    fn room(&self) -> usize {
        let there: usize = self.image.topics().map(|t| t.partitions.len()).sum();
        self.partitions_max.saturating_sub(there)
    }

    /// The refusal of `wanted` partitions where there is room for `room`.
    fn no_room(&self, wanted: usize, room: usize) -> TopicRefusal {
        let text = format!(
            "The limit of open files leaves room for {} partitions in all: {wanted} more are wanted, \
             {room} fit. Raise it (ulimit -n, LimitNOFILE=) and restart the broker.",
            self.partitions_max
        );
        TopicRefusal::new(ErrorCode::PolicyViolation, text)
    }

    /// An id for a new topic: not taken, and not reading as an option on a command line.
    fn new_topic_id(&mut self) -> TopicId {
        for _ in 0..ID_DRAWS_MAX {
            let id = TopicId::from_random((self.draw)());
            let usable = !id.reads_as_option() && self.image.topic_by_id(id).is_none();
            if usable && !id.is_zero() {
                return id;
            }
        }
        // Only with a source that is not random. The id is still well-formed; a taken one is
        // refused when the record is applied.
        TopicId::from_random((self.draw)())
    }

    /// Brokers that may hold new partitions, sorted by id.
    fn live_brokers(&self) -> Vec<BrokerId> {
        let live = self
            .image
            .brokers()
            .filter(|b| !b.fenced && !b.in_controlled_shutdown);
        live.map(|broker| broker.id).collect()
    }
}
