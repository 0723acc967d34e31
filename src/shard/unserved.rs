//! This shard's part in saying what is not served: partitions that are offline, ranges in quarantine; and what was not moved.

use std::rc::Rc;

use thalweg_control::{NotMovedLine, OfflineLine, QuarantinedLine, Unserved};
use thalweg_reactor::{oneshot, task};
use thalweg_storage::DamagedRange;
use thalweg_types::TopicPartition;
use thalweg_types::limits::UNSERVED_LINES_MAX;

use crate::pace::Pace;
use crate::partition::Partition;
use crate::shard::Shard;

impl Shard {
    /// Answers by and by, beside whatever else the control plane wants.
    pub(crate) fn tell_unserved(self: &Rc<Shard>, reply: oneshot::Sender<Unserved>) {
        let shard = Rc::clone(self);
        task::spawn(async move {
            // Whoever asked may have gone.
            let _ = reply.send(shard.unserved().await);
        });
    }

    async fn unserved(&self) -> Unserved {
        let mut found = Unserved::default();
        for (id, offline) in &*self.offline.borrow() {
            let dir = offline.dir.map(|dir| self.dir(dir).path());
            let dir = dir.map(|path| path.to_string_lossy().into_owned());
            let line = self.topic_of(*id).map(|topic| OfflineLine {
                topic,
                partition: id.partition.0,
                directory: dir,
                reason: offline.reason.clone(),
            });
            add(&mut found.offline, &mut found.left_out, line);
        }
        self.moves.each_given_up(|id, to, reason| {
            let line = self.topic_of(id).map(|topic| NotMovedLine {
                topic,
                partition: id.partition.0,
                directory: self.dir(to).path().to_string_lossy().into_owned(),
                reason: reason.to_owned(),
            });
            add(&mut found.not_moved, &mut found.left_out, line);
        });
        let mut pace = Pace::default();
        for partition in self.partitions() {
            pace.step().await;
            self.look_at(&partition, &mut found);
        }
        found
    }

    fn look_at(&self, partition: &Partition, found: &mut Unserved) {
        let (id, log) = (partition.id(), partition.log());
        let Some(topic) = self.topic_of(id) else {
            return;
        };
        if let Some(reason) = log.failure() {
            let path = self.dir(partition.dir()).path();
            let line = OfflineLine {
                topic,
                partition: id.partition.0,
                directory: Some(path.to_string_lossy().into_owned()),
                reason: reason.to_string(),
            };
            add(&mut found.offline, &mut found.left_out, Some(line));
            return;
        }
        // Most have none, and this is asked of each.
        if partition.quarantined_size().0 == 0 {
            return;
        }
        for (path, range) in log.quarantined_in_files() {
            let file = path.to_string_lossy().into_owned();
            let line = quarantined(&topic, id, file, range);
            add(&mut found.quarantined, &mut found.left_out, Some(line));
        }
    }

    /// The name of its topic; `None` when that is being deleted.
    fn topic_of(&self, id: TopicPartition) -> Option<String> {
        let view = self.view();
        let topic = view.image.topic_by_id(id.topic)?;
        Some(topic.name.to_string())
    }
}

fn quarantined(
    topic: &str,
    id: TopicPartition,
    file: String,
    range: DamagedRange,
) -> QuarantinedLine {
    QuarantinedLine {
        topic: topic.to_owned(),
        partition: id.partition.0,
        first_offset: range.first.0,
        next_offset: range.next.0,
        file,
        first_byte: range.bytes.start,
        end_byte: range.bytes.end,
        reason: Some(range.reason).filter(|reason| !reason.is_empty()),
    }
}

fn add<T>(lines: &mut Vec<T>, left_out: &mut u64, line: Option<T>) {
    match lines.len() < UNSERVED_LINES_MAX {
        true => lines.extend(line),
        false => *left_out += u64::from(line.is_some()),
    }
}
