//! How many shards, and on which cores.

use thalweg_reactor::cores;

use crate::args::ServeArgs;
use crate::exit::{Exit, Failure};

/// One entry per shard: the core it is pinned to, if any.
pub(super) struct Layout {
    /// In order of shard id.
    pub pins: Vec<Option<usize>>,
    /// Cores that no shard is pinned to, for ring workers and background threads.
    pub spare: Vec<usize>,
}

/// Refuses cores that the process may not use: a shard could not be pinned there.
pub(super) fn check_cores(args: &ServeArgs) -> Result<(), Failure> {
    let asked = args.cores.as_ref().map_or(&[][..], |list| &list.0);
    missing_core(asked, &cores::allowed())
        .map_or(Ok(()), |text| Err(Failure::new(Exit::Usage, text)))
}

fn missing_core(asked: &[usize], allowed: &[usize]) -> Option<String> {
    let missing = asked.iter().find(|core| !allowed.contains(core))?;
    let names: Vec<String> = allowed.iter().map(usize::to_string).collect();
    Some(format!(
        "--cores names core {missing}, but this process may use {} of them: {}",
        allowed.len(),
        names.join(",")
    ))
}

impl Layout {
    /// From the flags and the cores that the process may use.
    pub(super) fn choose(args: &ServeArgs) -> Layout {
        let cores = match &args.cores {
            Some(list) => list.0.clone(),
            None => cores::allowed(),
        };
        let shards = args.shards.map_or(cores.len().max(1), usize::from);
        Layout::new(&cores, shards)
    }

    fn new(cores: &[usize], shards: usize) -> Layout {
        if shards > cores.len() {
            tracing::warn!(
                shards,
                cores = cores.len(),
                "more shards than cores: they run unpinned and share the cores"
            );
            return Layout {
                pins: vec![None; shards],
                spare: Vec::new(),
            };
        }
        Layout {
            pins: cores[..shards].iter().copied().map(Some).collect(),
            spare: cores[shards..].to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Layout, missing_core};

    #[test]
    fn a_core_that_is_not_there_is_named_with_those_that_are() {
        assert_eq!(missing_core(&[], &[0, 1]), None);
        assert_eq!(missing_core(&[1, 0], &[0, 1]), None);
        let told = missing_core(&[0, 99], &[0, 1]).unwrap();
        let wanted = "--cores names core 99, but this process may use 2 of them: 0,1";
        assert_eq!(told, wanted);
    }

    #[test]
    fn shards_are_pinned_in_order_and_the_rest_is_spare() {
        let layout = Layout::new(&[2, 3, 5], 2);
        assert_eq!(layout.pins, [Some(2), Some(3)]);
        assert_eq!(layout.spare, [5]);
    }

    #[test]
    fn more_shards_than_cores_are_not_pinned() {
        let layout = Layout::new(&[0], 3);
        assert_eq!(layout.pins, [None, None, None]);
        assert!(layout.spare.is_empty());
    }
}
