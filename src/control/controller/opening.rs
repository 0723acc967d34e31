//! Opening all logs at a start.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use thalweg_reactor::{failpoint, oneshot, task, time};
use thalweg_storage::{Opening, PartitionName, Recovery};
use thalweg_types::limits::OPENING_SAID_EVERY_MS;
use thalweg_types::{Offset, TopicPartition};

use super::{Controller, StartError};
use crate::progress::OpeningProgress;
use crate::requests::{NotOpen, PartitionToOpen, Reconfigured, ShardCommand};

/// Says how far it is, now and then. Never ends.
async fn say_progress(progress: Arc<OpeningProgress>) {
    let every = Duration::from_millis(OPENING_SAID_EVERY_MS);
    let mut before = progress.get();
    loop {
        time::sleep(every).await;
        let now = progress.get();
        let bytes = now.bytes_checked.saturating_sub(before.bytes_checked);
        let mb_per_second = bytes as f64 / 1e6 / every.as_secs_f64();
        tracing::info!(
            open = now.open,
            of = now.logs,
            bytes_checked = now.bytes_checked,
            mb_per_second,
            "opening logs"
        );
        before = now;
    }
}

/// What became of the logs of a start.
#[derive(Default)]
pub(super) struct AllOpened {
    /// Those that could not be opened.
    pub(super) not_open: BTreeMap<PartitionName, NotOpen>,
    /// Up to where the others need no check after a kill.
    pub(super) marks: Vec<(TopicPartition, Offset)>,
    /// Where those begin that begin above what the checkpoint says.
    pub(super) starts: Vec<(TopicPartition, Offset)>,
}

impl Controller {
    /// Lets every shard open its partitions, and writes down what became of them.
    pub(super) async fn open(&mut self) -> Result<(), StartError> {
        let opened = self.open_all().await?;
        let (image, not_open) = (&self.view.image, &opened.not_open);
        self.dirs.record_opened(image, not_open).await?;
        let marks = self.with_ids(opened.marks);
        self.dirs.replace_marks(marks, not_open).await?;
        let starts = self.with_ids(opened.starts);
        // A disk that failed is seen elsewhere.
        match self.dirs.record_log_starts(starts).await {
            Ok(()) if not_open.is_empty() => self.dirs.keep_log_starts().await,
            Ok(()) => {}
            Err(error) => tracing::warn!(%error,
                "where some logs begin is not written down; it is at the next start"),
        }
        failpoint::pass("start: logs open");
        self.dirs.note_epochs_seen().await?;
        Ok(())
    }

    async fn open_all(&self) -> Result<AllOpened, StartError> {
        let mut open: Vec<Vec<PartitionToOpen>> = vec![Vec::new(); self.shards.len()];
        for topic in self.view.image.topics() {
            for (index, partition) in &topic.partitions {
                let id = TopicPartition {
                    topic: topic.id,
                    partition: *index,
                };
                let Some(owner) = self.view.owner(id) else {
                    continue;
                };
                let name = PartitionName::new(topic.name.to_string(), index.0);
                let dir = self.dirs.home(&name);
                let known = dir.and_then(|dir| self.dirs.opening(&name, topic.id, dir));
                open[usize::from(owner.0)].push(PartitionToOpen {
                    id,
                    topic: topic.name.to_string(),
                    leader_epoch: partition.leader_epoch,
                    dir,
                    future: self.dirs.future(&name),
                    opening: Opening {
                        epoch_max: Some(partition.leader_epoch),
                        ..known.unwrap_or(Recovery::AfterCleanStop.into())
                    },
                });
            }
        }
        let progress = self.facts.opening();
        progress.begin(open.iter().map(Vec::len).sum());
        let saying = task::spawn(say_progress(Arc::clone(progress)));
        let mut opening = Vec::new();
        for (shard, open) in open.into_iter().enumerate() {
            let (done, opened) = oneshot::channel();
            let view = Arc::clone(&self.view);
            let command = ShardCommand::Apply {
                view,
                open,
                delete: Vec::new(),
                removed: Arc::new([]),
                reconfigured: Reconfigured::default(),
                done,
            };
            self.shards[shard]
                .send(command)
                .await
                .map_err(|_| StartError::ShardGone(shard))?;
            opening.push(opened);
        }
        let mut opened = AllOpened::default();
        for (shard, applied) in opening.into_iter().enumerate() {
            let applied = applied.await.ok_or(StartError::ShardGone(shard))?;
            opened.marks.extend(applied.marks);
            opened.starts.extend(applied.starts);
            for failure in applied.failures {
                tracing::error!(shard, "{}", failure.line);
                opened.not_open.extend(failure.not_open);
            }
        }
        saying.abort();
        let so_far = progress.get();
        tracing::info!(
            logs = so_far.open,
            bytes_checked = so_far.bytes_checked,
            bytes_trusted = so_far.bytes_trusted,
            took_ms = so_far.took.as_millis() as u64,
            "all logs are open"
        );
        Ok(opened)
    }
}
