//! Offsets of topics that are gone: they must not lead anybody into another topic of the same name
//! (RP-116). They end when their topic does, and where that was missed, when the log is replayed.

use std::rc::Rc;
use std::sync::Arc;

use thalweg_types::TopicId;

use crate::ask::Now;
use crate::coordinator::Coordinator;
use crate::sweep::Wanted;
use crate::topics::Topics;

impl Coordinator {
    /// Topics of these names are gone, and `Topics` says so already. There may be new ones of the
    /// same names. Their offsets end from the next [`Coordinator::on_time`] on.
    pub fn on_topics_removed(&mut self, now: Now, names: &[Arc<str>]) {
        if self.is_loading() {
            // What is loaded is held against all topics at the end.
            return;
        }
        let names = names.iter().map(Arc::clone).collect();
        self.sweep(now, Wanted::Removed(names));
    }
}

/// As `ask`, asked once for all offsets of a topic that follow each other: to look a topic up costs more
/// than to look at an offset.
pub(crate) fn remembered(
    ask: impl Fn(&str, TopicId) -> bool,
) -> impl FnMut(&Rc<str>, TopicId) -> bool {
    let mut last: Option<(Rc<str>, TopicId, bool)> = None;
    move |name, id| match &last {
        Some((known, of, told)) if Rc::ptr_eq(known, name) && *of == id => *told,
        Some(_) | None => {
            let told = ask(name, id);
            last = Some((Rc::clone(name), id, told));
            told
        }
    }
}

/// True when an offset that was committed with `id` counts in the topic that has the name now. One
/// without an id, from older brokers, counts in any.
pub(crate) fn is_of(topics: &Topics, name: &str, id: TopicId) -> bool {
    topics
        .id(name)
        .is_some_and(|now| id == TopicId::ZERO || id == now)
}
