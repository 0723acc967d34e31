//! Answers about whole groups in pages: as much as one turn of the core may tell, and where to go on.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::rc::Rc;

use thalweg_protocol::messages::list_groups_response::ListedGroup;
use thalweg_types::limits::MEMBERS_TOLD_PER_TURN;

/// A described group, with some of its members. Pages are of different moments, so a member that comes or goes in
/// between may be told or not; none is told twice.
#[derive(Clone, Debug, PartialEq)]
pub struct DescribedPage<G> {
    /// What is told. Behind the first page only the members count.
    pub group: G,
    /// The last member that is told, where there are more behind it.
    pub rest: Option<String>,
}

impl<G> DescribedPage<G> {
    pub(crate) fn whole(group: G) -> DescribedPage<G> {
        DescribedPage { group, rest: None }
    }
}

/// Some groups of a coordinator.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedPage {
    /// What is told, in the order of names.
    pub groups: Vec<ListedGroup>,
    /// The last group that was looked at, where there are more behind it.
    pub rest: Option<String>,
}

/// Tells of the members behind `after`, in the order of ids, as many as one turn of the core may by what
/// `weight` says of each; and whom there are more behind.
pub(crate) fn page_of<M, T>(
    members: &BTreeMap<Rc<str>, M>,
    after: Option<&str>,
    weight: impl Fn(&M) -> usize,
    tell: impl Fn(&M) -> T,
) -> (Vec<T>, Option<String>) {
    let from = after.map_or(Unbounded, Excluded);
    let (mut told, mut last, mut left) = (Vec::new(), None, MEMBERS_TOLD_PER_TURN);
    for (id, member) in members.range::<str, _>((from, Unbounded)) {
        if left == 0 {
            return (told, last);
        }
        left = left.saturating_sub(1 + weight(member));
        told.push(tell(member));
        if left == 0 {
            last = Some(id.to_string());
        }
    }
    (told, None)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::rc::Rc;

    use thalweg_types::limits::MEMBERS_TOLD_PER_TURN;

    use super::page_of;

    #[test]
    fn bi_8_pages_tell_everybody_once_and_are_bounded() {
        let names: Vec<Rc<str>> = (0..3 * MEMBERS_TOLD_PER_TURN)
            .map(|n| Rc::from(format!("{n:06}")))
            .collect();
        for weight in [0, 1, 9, 2 * MEMBERS_TOLD_PER_TURN] {
            let count = names.len() / (1 + weight.min(99));
            let all: BTreeMap<Rc<str>, usize> =
                names[..count].iter().cloned().zip(0..count).collect();
            let (mut told, mut after) = (Vec::new(), None);
            loop {
                let (page, rest) = page_of(&all, after.as_deref(), |_| weight, |nth| *nth);
                assert!(page.len() <= 1 + MEMBERS_TOLD_PER_TURN / (1 + weight));
                told.extend(page);
                match rest {
                    Some(rest) => after = Some(rest),
                    None => break,
                }
            }
            assert_eq!(told, (0..count).collect::<Vec<_>>(), "of weight {weight}");
        }
    }
}
