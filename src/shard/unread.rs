//! Records that were promised to a client and could not be read. Its connection ends in the middle of the answer; the
//! owner of the partition finds out what is lost, so that the client is told when it asks again.

use std::path::Path;
use std::rc::Rc;

use thalweg_net::Unread;
use thalweg_reactor::task;
use thalweg_storage::PartitionName;
use thalweg_types::{ShardId, TopicPartition};

use crate::peer::PeerRequest;
use crate::shard::Shard;

impl Shard {
    /// Tells the owner of the file's partition.
    pub(crate) fn pass_on_unread(self: &Rc<Self>, unread: Unread) {
        let Some((id, owner)) = self.owner_of_file(&unread.path) else {
            return;
        };
        if owner == self.id {
            return self.find_lost(id, unread);
        }
        let shard = Rc::clone(self);
        task::spawn(async move {
            let request = PeerRequest::Unread { id, unread };
            shard.ask_peer(usize::from(owner.0), request).await;
        });
    }

    /// Has a partition of this shard find out what of a file is lost.
    pub(crate) fn find_lost(&self, id: TopicPartition, unread: Unread) {
        if let Some(partition) = self.partition(id) {
            task::spawn(async move { partition.note_unread(&unread).await });
        }
    }

    fn owner_of_file(&self, path: &Path) -> Option<(TopicPartition, ShardId)> {
        let folder = path.parent()?.file_name()?.to_str()?;
        let name: PartitionName = folder.parse().ok()?;
        let view = self.view();
        let id = TopicPartition {
            topic: view.image.topic(&name.topic)?.id,
            partition: name.partition,
        };
        Some((id, view.owner(id)?))
    }
}
