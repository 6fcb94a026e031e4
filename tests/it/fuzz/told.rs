//! What is told of bytes from outside.

/// Panics unless `message` is one line that says something: it stands in logs and on an ApplicationSet's condition.
#[track_caller]
pub fn is_one_line(message: &str) {
    assert!(!message.trim().is_empty(), "an error without a word");
    assert!(!message.contains(char::is_control), "control characters in {message:?}");
}
