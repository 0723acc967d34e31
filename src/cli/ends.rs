//! Where partitions begin and end, as far as their leaders tell.

use std::collections::BTreeMap;

use thalweg_client::{Cluster, FoundOffset, OffsetSpec, Topic};

use crate::exit::Failure;

/// Offsets of the partitions of one topic. What a leader says against one partition goes to `failures`:
/// the rest is still worth showing.
pub(crate) fn known_offsets(
    cluster: &mut Cluster,
    topic: &Topic,
    spec: OffsetSpec,
    failures: &mut Vec<String>,
) -> Result<BTreeMap<i32, FoundOffset>, Failure> {
    let mut offsets = BTreeMap::new();
    for (partition, answer) in cluster.offsets_of_each(topic, spec)? {
        match answer {
            Ok(found) => {
                offsets.insert(partition, found);
            }
            Err(error) => {
                let text = error.to_string();
                // What keeps a leader from telling one end keeps it from telling the other.
                if !failures.contains(&text) {
                    failures.push(text);
                }
            }
        }
    }
    Ok(offsets)
}

/// Fails with all that leaders had to say, if there is something.
pub(crate) fn told(failures: &[String]) -> Result<(), Failure> {
    match failures.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(
            crate::exit::Exit::Failed,
            failures.join("\nthalweg: "),
        )),
    }
}
