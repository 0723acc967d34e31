//! Changes of metadata that are made and wait for a disk that does not answer: the controller goes on without them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use thalweg_metadata::controller::TopicRefusal;
use thalweg_metadata::{Delta, Image};
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::{
    CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsResponse,
    create_topics_response::CreatableTopicResult,
};
use thalweg_reactor::event::Event;
use thalweg_reactor::{oneshot, task, time};
use thalweg_types::TopicId;

use super::{CommitError, Controller};

/// How long the controller waits for the disks that a change needs.
const PATIENCE: Duration = Duration::from_secs(1);

/// Topics that came or went and wait for a disk.
#[derive(Default)]
pub(super) struct Unfinished {
    /// Partitions of these are being opened, or deleted.
    topics: BTreeSet<TopicId>,
    /// Files of deleted topics of these names may be in their places, and entries in the checkpoints: no new one may have
    /// the name.
    leaving: BTreeMap<Arc<str>, usize>,
}

/// What is left to do of a change that is durable.
#[derive(Clone, Default)]
pub(super) struct Rest(Option<Rc<Left>>);

struct Left {
    over: Event,
    topics: Vec<TopicId>,
    leaving: Vec<Arc<str>>,
    all: Rc<RefCell<Unfinished>>,
}

impl Unfinished {
    /// Notes what `delta` begins.
    pub(super) fn note(all: &Rc<RefCell<Unfinished>>, delta: &Delta) -> Rest {
        let removed = delta.topics_removed.values();
        let left = Left {
            over: Event::new(),
            topics: delta.topics_created.iter().copied().collect(),
            leaving: removed.map(|topic| Arc::clone(&topic.name)).collect(),
            all: Rc::clone(all),
        };
        let mut noted = all.borrow_mut();
        noted.topics.extend(&left.topics);
        for name in &left.leaving {
            *noted.leaving.entry(Arc::clone(name)).or_default() += 1;
        }
        drop(noted);
        Rest(Some(Rc::new(left)))
    }
}

impl Rest {
    /// All is done.
    pub(super) fn end(&self) {
        let Some(left) = &self.0 else { return };
        let mut all = left.all.borrow_mut();
        for topic in &left.topics {
            all.topics.remove(topic);
        }
        for name in &left.leaving {
            if let Some(times) = all.leaving.get_mut(name) {
                *times -= 1;
            }
        }
        all.leaving.retain(|_, times| *times > 0);
        left.over.open();
    }

    /// Nothing, where all is done within [`PATIENCE`].
    pub(super) async fn within_patience(self) -> Rest {
        match time::timeout(PATIENCE, self.done()).await {
            Ok(()) => Rest::default(),
            Err(_) => self,
        }
    }

    pub(super) async fn done(&self) {
        if let Some(left) = &self.0 {
            left.over.wait().await;
        }
    }
}

/// An answer that may have to say that what it tells of was begun and is not over.
pub(super) trait Answer: Send + 'static {
    /// Says it in each row that tells of success.
    fn time_out(&mut self);
}

fn time_out<'r>(rows: impl Iterator<Item = (&'r mut i16, &'r mut Option<String>)>) {
    for (code, message) in rows.filter(|(code, _)| **code == 0) {
        *code = ErrorCode::RequestTimedOut.code();
        *message = Some("begun, and not over: the disk of a log directory does not answer".into());
    }
}

impl Answer for CreateTopicsResponse {
    fn time_out(&mut self) {
        let rows = self.topics.iter_mut();
        time_out(rows.map(|row| (&mut row.error_code, &mut row.error_message)));
    }
}

impl Answer for DeleteTopicsResponse {
    fn time_out(&mut self) {
        let rows = self.responses.iter_mut();
        time_out(rows.map(|row| (&mut row.error_code, &mut row.error_message)));
    }
}

impl Answer for CreatePartitionsResponse {
    fn time_out(&mut self) {
        let rows = self.results.iter_mut();
        time_out(rows.map(|row| (&mut row.error_code, &mut row.error_message)));
    }
}

/// Gives an answer when `rest` is done, or `timeout_ms` are over.
pub(super) fn when_done<A: Answer>(
    rest: Rest,
    timeout_ms: i32,
    mut answer: A,
    reply: oneshot::Sender<A>,
) {
    if rest.0.is_none() {
        let _ = reply.send(answer);
        return;
    }
    let most = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
    task::spawn(async move {
        if time::timeout(most.saturating_sub(PATIENCE), rest.done())
            .await
            .is_err()
        {
            answer.time_out();
        }
        let _ = reply.send(answer);
    });
}

impl Controller {
    /// Why no topic of that name can be made yet.
    pub(super) fn leaving(&self, name: &str) -> Option<TopicRefusal> {
        let unfinished = self.unfinished.borrow();
        unfinished.leaving.contains_key(name).then(|| TopicRefusal {
            code: ErrorCode::RequestTimedOut,
            message: "a deleted topic of this name has files on a disk that does not answer".into(),
        })
    }

    /// Whether partitions of a topic that was made are still being opened.
    pub(super) fn is_arriving(&self, topic: TopicId) -> bool {
        self.unfinished.borrow().topics.contains(&topic)
    }

    /// The request without topics whose names are not free yet, and the answers for those.
    pub(super) fn without_leaving(
        &self,
        request: &CreateTopicsRequest,
    ) -> (CreateTopicsRequest, Vec<CreatableTopicResult>) {
        let mut refused = Vec::new();
        let mut request = request.clone();
        request.topics.retain(|topic| {
            let refusal = self.leaving(&topic.name);
            refused.extend(refusal.as_ref().map(|refusal| CreatableTopicResult {
                name: topic.name.clone(),
                error_code: refusal.code.code(),
                error_message: Some(refusal.message.clone()),
                num_partitions: -1,
                replication_factor: -1,
                ..Default::default()
            }));
            refusal.is_none()
        });
        (request, refused)
    }

    /// Has the checkpoints of the directories that new partitions go to say nothing of others of their names.
    pub(super) async fn catch_up(&self, image: &Image, delta: &Delta) -> Result<(), CommitError> {
        let local = self.view.broker_id;
        let changed = delta.partitions_changed.iter();
        let new = changed.filter(|id| self.view.image.partition(**id).is_none());
        let homes = new.filter_map(|id| {
            let told = image.partition(*id)?.directory_of(local);
            self.dirs.home_told(told)
        });
        let caught_up = self.dirs.catch_up(&homes.collect());
        match time::timeout(PATIENCE, caught_up).await {
            Ok(done) => Ok(done?),
            Err(_) => Err(CommitError::Silent),
        }
    }
}
