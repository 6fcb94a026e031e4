//! The keys and roots by which a backend verifies answers.

use std::time::Instant;

/// The state of a backend's verification at one moment: its keys, its roots, and the demands on signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trust {
    /// A hash of it, the same in all replicas. 0: nothing is verified.
    pub fingerprint: u64,
    /// How often it has changed since the configuration was read. Two equal values mean that nothing changed in between, not even to
    /// something else and back.
    pub changes: u64,
    /// Since when it is as it is. `None`: nothing is verified.
    pub since: Option<Instant>,
    /// Whether all files can be read and used.
    pub is_complete: bool,
}

impl Trust {
    /// Of a backend that verifies nothing.
    pub const NONE: Self = Self { fingerprint: 0, changes: 0, since: None, is_complete: true };

    /// The trust of a backend with several steps, to which `step` is added.
    #[must_use]
    pub fn with(self, step: Self) -> Self {
        Self {
            // Rotated, so that two steps with the same keys do not cancel each other out.
            fingerprint: self.fingerprint.rotate_left(1) ^ step.fingerprint,
            changes: self.changes + step.changes,
            since: self.since.max(step.since),
            is_complete: self.is_complete && step.is_complete,
        }
    }

    /// Whether an answer that was made under the trust with this fingerprint may be served. A backend that verifies nothing serves all
    /// answers.
    #[must_use]
    pub const fn accepts(&self, fingerprint: u64) -> bool {
        self.fingerprint == 0 || self.fingerprint == fingerprint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_add_up() {
        let now = Instant::now();
        let keys = |fingerprint: u64, changes: u64| Trust { fingerprint, changes, since: Some(now), is_complete: true };
        assert_eq!(Trust::NONE.with(keys(7, 1)), keys(7, 1));
        let both = Trust::NONE.with(keys(7, 1)).with(keys(7, 2));
        assert!(both.fingerprint != 0 && both.changes == 3, "equal keys do not cancel each other out: {both:?}");
        let partial = keys(7, 0).with(Trust { is_complete: false, ..keys(8, 0) });
        assert!(!partial.is_complete && !partial.with(Trust::NONE).is_complete);
    }

    #[test]
    fn only_a_backend_that_verifies_nothing_serves_answers_under_any_keys() {
        let keys = Trust { fingerprint: 7, ..Trust::NONE };
        assert_eq!([keys.accepts(7), keys.accepts(8), keys.accepts(0)], [true, false, false]);
        assert!(Trust::NONE.accepts(7));
    }
}
