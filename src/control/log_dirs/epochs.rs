//! Which leader epochs a start after a crash leaves as they are.

use std::collections::{BTreeSet, HashSet};

use thalweg_metadata::Image;
use thalweg_types::{BrokerId, TopicPartition};

use super::{LogDirs, ids_of};

impl LogDirs {
    /// Partitions that `local` leads in an epoch in which nothing was written, and that lost nothing to the crash: a
    /// broker that crashes again and again does not write them a new one each time (ST-34).
    pub(crate) async fn untouched(
        &self,
        image: &Image,
        local: BrokerId,
    ) -> HashSet<TopicPartition> {
        let mut untouched = HashSet::new();
        for (here, dir) in self.working() {
            let led = ids_of(image).filter_map(|(id, name)| {
                let partition = image.partition(id)?;
                let is_led = partition.leader == Some(local) && self.home(&name) == Some(here);
                is_led.then_some((id, name, partition.leader_epoch))
            });
            let (mut ids, mut asked) = (Vec::new(), Vec::new());
            for (id, name, epoch) in led {
                ids.push((id, name.clone()));
                asked.push((name, epoch));
            }
            let names: BTreeSet<_> = dir.untouched(asked).await;
            let told = ids.into_iter().filter(|(_, name)| names.contains(name));
            untouched.extend(told.map(|(id, _)| id));
        }
        untouched
    }
}
