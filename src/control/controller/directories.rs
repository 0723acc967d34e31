//! A log directory fails while others go on.

use thalweg_metadata::ReplicaHome;
use thalweg_reactor::oneshot;

use super::Controller;
use crate::log_dirs::DirIndex;
use crate::requests::ShardCommand;

impl Controller {
    /// Nothing of the directory is served from here on; then the metadata says so to clients, as
    /// Kafka's does: its partitions have no leader and an offline replica.
    pub(super) async fn on_directory_failed(&mut self, dir: DirIndex) {
        let mut stopping = Vec::new();
        for shard in &self.shards {
            let (done, stopped) = oneshot::channel();
            let command = ShardCommand::DirectoryFailed { dir, done };
            if shard.send(command).await.is_ok() {
                stopping.push(stopped);
            }
        }
        for stopped in stopping {
            let _ = stopped.await;
        }
        let view = self.view.clone();
        let (image, local) = (&view.image, view.broker_id);
        let offline = |at| {
            let home = self.dirs.replica_home(image, local, at);
            home.filter(|home| *home == ReplicaHome::Offline)
        };
        let mut records = image.settle_directories(local, offline);
        records.extend(image.change_log_dirs(local, self.dirs.working_ids()));
        if let Err(error) = self.commit(records).await {
            tracing::error!(%error,
                "the metadata does not say that a log directory failed: clients go on asking for what is in it");
        }
    }
}
