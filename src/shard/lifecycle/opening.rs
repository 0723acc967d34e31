//! Openings of partitions, which wait for disks, beside all else that a shard does.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use thalweg_control::{Applied, ApplyFailure, ClusterView, DirIndex, PartitionToOpen};
use thalweg_metadata::names::OFFSETS_TOPIC;
use thalweg_reactor::event::Event;
use thalweg_reactor::task::{self, Task};
use thalweg_reactor::{failpoint, in_place, time};
use thalweg_storage::PartitionName;
use thalweg_types::limits::PARTITIONS_AT_ONCE;
use thalweg_types::{IdMap, TopicPartition};

use super::Lifecycle;
use super::applying::{log_options, refused, untold_start};
use crate::partition::{Partition, PartitionError};
use crate::together;

/// A change of metadata goes on when for so long no partition that it has made was opened: their disk does not
/// answer.
pub(super) const OPEN_PATIENCE: Duration = Duration::from_secs(1);

/// What is being opened and deleted for one change of metadata, and what became of it so far.
pub(super) struct Applying {
    /// Those that are being opened, with their log directories.
    left: RefCell<IdMap<TopicPartition, Option<DirIndex>>>,
    /// Given a permit by each end.
    ends: Event,
    applied: RefCell<Applied>,
    parting: RefCell<Vec<Task<Option<ApplyFailure>>>>,
    /// Partitions whose groups are to be loaded when the view that they are in is adopted.
    of_offsets: RefCell<Vec<Rc<Partition>>>,
    is_adopted: Cell<bool>,
}

impl Applying {
    pub(super) fn new(
        open: &[PartitionToOpen],
        parting: Vec<Task<Option<ApplyFailure>>>,
    ) -> Rc<Applying> {
        let left = open.iter().map(|wanted| (wanted.id, wanted.dir));
        Rc::new(Applying {
            left: RefCell::new(left.collect()),
            ends: Event::new(),
            applied: RefCell::default(),
            parting: RefCell::new(parting),
            of_offsets: RefCell::default(),
            is_adopted: Cell::new(false),
        })
    }

    /// Returns when all are opened, or none was for so long.
    pub(super) async fn wait(&self, patience: Duration) {
        while !self.left.borrow().is_empty() {
            let end = self.ends.wait();
            if patience == Duration::MAX {
                end.await;
            } else if time::timeout(patience, end).await.is_err() {
                return;
            }
        }
    }

    /// Those that are not opened yet.
    pub(super) fn left(&self) -> Vec<(TopicPartition, Option<DirIndex>)> {
        let left = self.left.borrow();
        left.iter().map(|(id, dir)| (*id, *dir)).collect()
    }

    /// The view that they are in is adopted. Gives the partitions whose groups are to be loaded.
    pub(super) fn adopted(&self) -> Vec<Rc<Partition>> {
        self.is_adopted.set(true);
        self.of_offsets.take()
    }

    /// What became of all, once all came to an end.
    pub(super) async fn ended(self: Rc<Self>) -> Applied {
        self.wait(Duration::MAX).await;
        let mut applied = self.applied.take();
        for parting in self.parting.take() {
            applied.failures.extend(parting.await.flatten());
        }
        applied
    }
}

impl Lifecycle {
    /// Tries again those that could not be opened.
    pub(super) fn open_waiting(self: &Rc<Self>) {
        failpoint::pass("open again");
        let (view, wanted) = (self.shard.view(), self.waiting.take());
        self.spawn_openings(wanted, move |life, wanted| {
            let view = Arc::clone(&view);
            async move {
                let opened = life.open(&view, &wanted).await;
                life.opened_again(wanted, opened);
            }
        });
    }

    /// Opens partitions, several at a time; in no certain order.
    pub(super) fn begin_to_open(
        self: &Rc<Self>,
        view: &Arc<ClusterView>,
        wanted: Vec<PartitionToOpen>,
        applying: &Rc<Applying>,
    ) {
        let (view, applying) = (Arc::clone(view), Rc::clone(applying));
        self.spawn_openings(wanted, move |life, wanted| {
            let (view, applying) = (Arc::clone(&view), Rc::clone(&applying));
            async move {
                let opening = life.open(&view, &wanted);
                let opened = match life.serves.get() {
                    true => opening.await,
                    // Nobody waits for this core yet, and the logs of a start are many.
                    false => in_place(opening).await,
                };
                let id = wanted.id;
                life.opened(wanted, opened, &applying);
                applying.left.borrow_mut().remove(&id);
                applying.ends.notify();
            }
        });
    }

    /// Each log directory is worked on by itself, so that one whose disk does not answer holds up no other.
    fn spawn_openings<F: Future<Output = ()> + 'static>(
        self: &Rc<Self>,
        wanted: Vec<PartitionToOpen>,
        work: impl Fn(Rc<Lifecycle>, PartitionToOpen) -> F + 'static,
    ) {
        let work = Rc::new(work);
        let mut by_dir: BTreeMap<Option<DirIndex>, Vec<PartitionToOpen>> = BTreeMap::new();
        for wanted in wanted {
            let mut opening = self.opening_now.borrow_mut();
            opening.insert(wanted.id, Event::new());
            by_dir.entry(wanted.dir).or_default().push(wanted);
        }
        for wanted in by_dir.into_values() {
            let (life, work) = (Rc::clone(self), Rc::clone(&work));
            task::spawn(together::each(wanted, PARTITIONS_AT_ONCE, move |wanted| {
                let (life, id) = (Rc::clone(&life), wanted.id);
                let working = work(Rc::clone(&life), wanted);
                async move {
                    working.await;
                    let ended = life.opening_now.borrow_mut().remove(&id);
                    ended.iter().for_each(Event::open);
                }
            }));
        }
    }

    fn opened(
        &self,
        wanted: PartitionToOpen,
        opened: Result<Rc<Partition>, PartitionError>,
        applying: &Applying,
    ) {
        let partition = match opened {
            Ok(partition) => partition,
            Err(error) => {
                let reason = error.to_string();
                self.shard.mark_offline(wanted.id, wanted.dir, reason);
                let failure = refused(&wanted, &error);
                applying.applied.borrow_mut().failures.extend(failure);
                if error.may_pass() {
                    self.try_again(wanted);
                }
                return;
            }
        };
        if applying.is_adopted.get() {
            let name = PartitionName::new(wanted.topic.clone(), wanted.id.partition.0);
            tracing::info!(partition = %name, "opened: its disk answers again");
            return self.serve_late(&wanted, partition);
        }
        let mut applied = applying.applied.borrow_mut();
        applied.starts.extend(untold_start(&wanted, &partition));
        if !self.serves.get()
            && let Some(mark) = partition.new_mark()
        {
            // The file gets it with all others of the start.
            partition.on_mark_recorded(mark);
            applied.marks.push((partition.id(), mark));
        }
        let mut of_offsets = applying.of_offsets.borrow_mut();
        of_offsets.extend(of_offsets_topic(&wanted, partition));
    }

    fn opened_again(&self, wanted: PartitionToOpen, opened: Result<Rc<Partition>, PartitionError>) {
        let name = PartitionName::new(wanted.topic.clone(), wanted.id.partition.0);
        match opened {
            Ok(partition) => {
                tracing::info!(partition = %name, "opened: the cause has passed");
                self.serve_late(&wanted, partition);
            }
            Err(error) if error.may_pass() => self.try_again(wanted),
            Err(error) => {
                tracing::error!(partition = %name, %error, "offline, and not tried again");
            }
        }
    }

    /// Later, unless it is being deleted.
    fn try_again(&self, wanted: PartitionToOpen) {
        if !self.parting.borrow().contains_key(&wanted.id) {
            self.waiting.borrow_mut().push(wanted);
        }
    }

    /// A partition is open that the current view has had for a while, unless it is being deleted.
    fn serve_late(&self, wanted: &PartitionToOpen, partition: Rc<Partition>) {
        let Some(config) = self.shard.topic_config(wanted.id.topic) else {
            return;
        };
        partition.reconfigure(&config, log_options(&config, &self.log_options));
        if let Some(start) = untold_start(wanted, &partition) {
            let shard = Rc::clone(&self.shard);
            // The control plane may be waiting for this task. What fails is said there.
            task::spawn(async move { shard.control.record_log_starts(vec![start]).await });
        }
        if let Some(partition) = of_offsets_topic(wanted, partition) {
            let coordinators = &self.shard.coordinators;
            coordinators.open(partition, &self.shard.config);
        }
    }
}

/// The partition, if its groups are to be loaded; that needs the view that the partition is in.
fn of_offsets_topic(wanted: &PartitionToOpen, partition: Rc<Partition>) -> Option<Rc<Partition>> {
    (wanted.topic == OFFSETS_TOPIC).then_some(partition)
}
