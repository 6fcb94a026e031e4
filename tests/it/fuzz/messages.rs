//! Messages about bytes from outside.

/// Panics unless `message` is one line with content: it goes into logs and into an ApplicationSet's condition.
#[track_caller]
pub(super) fn is_one_line(message: &str) {
    assert!(!message.trim().is_empty(), "an error without a word");
    assert!(!message.contains(char::is_control), "control characters in {message:?}");
}
