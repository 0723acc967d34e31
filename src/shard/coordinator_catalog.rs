//! What coordinators are told of topics and of the settings of groups: the shard's view.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use thalweg_config::GroupConfig;
use thalweg_group::{GroupSettings, TopicCatalog, TopicShape};
use thalweg_metadata::Image;
use thalweg_types::TopicId;

use crate::shard::SharedView;

/// The catalog of all coordinators of a shard, which share it.
#[derive(Clone)]
pub(crate) struct Catalog {
    view: SharedView,
    /// The image that was last looked at, and how many had other topics than the one before.
    seen: Rc<RefCell<(Arc<Image>, u64)>>,
}

impl Catalog {
    pub(crate) fn new(view: SharedView) -> Catalog {
        let image = Arc::clone(&view.borrow().image);
        Catalog {
            view,
            seen: Rc::new(RefCell::new((image, 0))),
        }
    }
}

impl TopicCatalog for Catalog {
    fn topic(&self, name: &str) -> Option<TopicShape> {
        let view = self.view.borrow();
        let topic = view.image.topic(name)?;
        Some(TopicShape {
            id: topic.id,
            partitions: i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX),
        })
    }

    fn name(&self, id: TopicId) -> Option<Arc<str>> {
        let view = self.view.borrow();
        Some(Arc::clone(&view.image.topic_by_id(id)?.name))
    }

    fn names(&self) -> Vec<Arc<str>> {
        let view = self.view.borrow();
        let topics = view.image.topics();
        topics.map(|topic| Arc::clone(&topic.name)).collect()
    }

    fn version(&self) -> u64 {
        let image = Arc::clone(&self.view.borrow().image);
        let (seen, version) = &mut *self.seen.borrow_mut();
        if !image.has_topics_of(seen) {
            *version += 1;
        }
        *seen = image;
        *version
    }

    fn group(&self, id: &str) -> GroupSettings {
        let view = self.view.borrow();
        let config = GroupConfig::resolve(&view.config, view.image.group_overrides(id));
        GroupSettings {
            session_ms: config.consumer_session_timeout_ms,
            heartbeat_ms: config.consumer_heartbeat_interval_ms,
            // The broker's may change while it runs.
            assignment_ms: config
                .consumer_assignment_interval_ms
                .or_else(|| Some(view.config.group_consumer_assignment_interval_ms())),
        }
    }
}
