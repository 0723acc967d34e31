//! Producer ids to give out: a block of the controller's at a time, asked for when the last is used up.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use thalweg_control::{ControlHandle, ProducerIdBlock};
use thalweg_protocol::ErrorCode;
use thalweg_reactor::event::Event;
use thalweg_reactor::task;
use thalweg_types::ProducerId;

/// One shard's block. However many producers wait, one request is under way.
#[derive(Default)]
pub(crate) struct ProducerIds {
    block: RefCell<ProducerIdBlock>,
    /// Opened when the request under way has ended.
    asking: RefCell<Option<Event>>,
    /// How the last request ended, when it failed.
    failed: Cell<Option<ErrorCode>>,
}

impl ProducerIds {
    /// An id that no producer has or will ever have (RP-72).
    ///
    /// # Errors
    /// Kafka's code, which tells clients to come again, when no block is to be had.
    pub(crate) async fn next(
        self: &Rc<Self>,
        control: &ControlHandle,
    ) -> Result<ProducerId, ErrorCode> {
        if let Some(id) = self.block.borrow_mut().take_one() {
            return Ok(id);
        }
        loop {
            self.ask(control).wait().await;
            if let Some(id) = self.block.borrow_mut().take_one() {
                return Ok(id);
            }
            if let Some(error) = self.failed.get() {
                return Err(error);
            }
        }
    }

    /// Asks unless somebody has. In a task of its own: the client that caused it may go away while
    /// others wait.
    fn ask(self: &Rc<Self>, control: &ControlHandle) -> Event {
        let mut asking = self.asking.borrow_mut();
        if let Some(ended) = asking.as_ref() {
            return ended.clone();
        }
        let ended = Event::new();
        *asking = Some(ended.clone());
        let (ids, control) = (Rc::clone(self), control.clone());
        task::spawn(async move {
            let answer = control.producer_ids().await;
            match answer {
                Some(Ok(block)) => {
                    ids.block.replace(block);
                    ids.failed.set(None);
                }
                Some(Err(error)) => ids.failed.set(Some(error)),
                // The broker is stopping; the client finds the next one.
                None => ids.failed.set(Some(ErrorCode::CoordinatorLoadInProgress)),
            }
            if let Some(ended) = ids.asking.take() {
                ended.open();
            }
        });
        ended
    }
}
