//! Panics of the simulated components: caught with their location, and reported only in the violation.
//!
//! A failing run is repeated a thousand times to shorten it. Otherwise each repetition would print its panic and hide
//! the one relevant line.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether this thread executes a run.
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    /// The location of its last panic.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A panic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Panicked {
    /// The message.
    pub(crate) message: String,
    /// File and line.
    pub(crate) place: String,
}

/// Runs a closure and catches its panic. Panics of other threads, and of this thread outside of the closure, are
/// printed as usual.
pub(crate) fn caught<T>(what: impl FnOnce() -> T) -> Result<T, Panicked> {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |info| {
            if WATCHED.get() {
                note(info)
            } else {
                usual(info)
            }
        }));
    });
    WATCHED.set(true);
    let ended = catch_unwind(AssertUnwindSafe(what));
    WATCHED.set(false);
    ended.map_err(|panic| Panicked {
        message: text_of(&*panic),
        place: PLACE.take(),
    })
}

fn note(info: &PanicHookInfo<'_>) {
    let place = info.location().map(ToString::to_string);
    PLACE.set(place.unwrap_or_default());
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
    text.unwrap_or_else(|| "without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_reported_with_its_location() {
        assert_eq!(caught(|| 7), Ok(7));
        let panicked = caught(|| panic!("{} is odd", 7)).expect_err("it panics");
        assert_eq!(panicked.message, "7 is odd");
        assert!(panicked.place.contains("panics.rs:"), "{}", panicked.place);
        let panicked = caught(|| std::panic::panic_any(7)).expect_err("it panics");
        assert_eq!(panicked.message, "without a message");
    }
}
