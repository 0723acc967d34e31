//! What DescribeGroups and ConsumerGroupDescribe have in common: each group by its coordinator, which tells of its
//! members in pages.

use std::rc::Rc;

use thalweg_group::{Answer, Ask, DescribedPage};

use super::operations;
use crate::groups::OfGroup;
use crate::growing::Growing;
use crate::service::Call;
use crate::shard::Shard;

/// A described group of either protocol.
pub(crate) trait Described: Sized {
    /// Asks for the group with its members behind one of them.
    fn ask(group: String, after: Option<String>) -> Ask;
    fn error_code(&self) -> i16;
    /// Bytes, roughly.
    fn weight(&self) -> usize;
    /// Takes in the members of a later page.
    fn append(&mut self, later: Self);
    /// What the client may do to it (KIP-430).
    fn set_operations(&mut self, operations: i32);
}

impl<G: Described> OfGroup for DescribedPage<G>
where
    DescribedPage<G>: TryFrom<Answer>,
{
    fn error_code(&self) -> i16 {
        self.group.error_code()
    }

    fn weight(&self) -> usize {
        self.group.weight()
    }

    fn rest(&mut self) -> Option<String> {
        self.rest.take()
    }

    fn append(&mut self, later: Self) {
        self.group.append(later.group);
    }
}

/// Whether operations are to be told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operations {
    Told,
    LeftOut,
}

impl From<bool> for Operations {
    /// By `include_authorized_operations` of a request.
    fn from(included: bool) -> Operations {
        match included {
            true => Operations::Told,
            false => Operations::LeftOut,
        }
    }
}

/// The groups of these names, and how far the answer has grown.
pub(crate) async fn describe<G: Described>(
    shard: &Rc<Shard>,
    call: &Call,
    names: Vec<String>,
    told: Operations,
) -> (Vec<G>, Growing)
where
    DescribedPage<G>: TryFrom<Answer>,
{
    let mut growing = Growing::of(shard, call);
    let pages = shard.ask_each::<DescribedPage<G>>(names, call, &mut growing, G::ask);
    let pages = pages.await.into_iter();
    let mut groups: Vec<G> = pages.map(|page| page.group).collect();
    if told == Operations::Told {
        let known = groups.iter_mut().filter(|group| group.error_code() == 0);
        known.for_each(|group| group.set_operations(operations::GROUP_ALL));
    }
    (groups, growing)
}
