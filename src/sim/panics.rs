//! A task that panics. The broker ends then; a scheduler in a test only drops the task, and what waits for
//! it waits for ever.

use std::cell::RefCell;
use std::panic::{self, PanicHookInfo};
use std::sync::Once;

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Begins to keep what panics of this process say.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            keep(info);
            before(info);
        }));
    });
    let _before = take();
}

fn keep(info: &PanicHookInfo<'_>) {
    let text = info.payload_as_str().unwrap_or("something");
    let place = info
        .location()
        .map_or_else(String::new, |at| format!(" at {at}"));
    // A thread that is ending has no place for it any more.
    let _kept = LAST.try_with(|last| *last.borrow_mut() = Some(format!("{text}{place}")));
}

/// What the last panic of this thread said, once.
pub(crate) fn take() -> Option<String> {
    LAST.with(|last| last.borrow_mut().take())
}
