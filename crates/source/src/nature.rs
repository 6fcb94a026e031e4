//! The constants of a built backend.

use lang::scope::ValueType;

/// The values that do not change while a backend lives, so that they are computed once.
#[derive(Debug, Clone, PartialEq)]
pub struct Nature {
    /// Whether an answer may depend on the ApplicationSet's name, which is then part of its cache key.
    pub reads_application_set: bool,
    /// Whether the backend needs the notes that it made with the lineage's last answer.
    pub takes_notes: bool,
    /// Whether answers may become outdated. The list of `fixed` never does.
    pub gets_old: bool,
    /// The type of an item, as far as it is known before a call.
    pub item: ValueType,
}

impl Default for Nature {
    /// A backend of which nothing is known: the cautious values.
    fn default() -> Self {
        Self { reads_application_set: true, takes_notes: false, gets_old: true, item: ValueType::Anything }
    }
}

impl Nature {
    /// The nature of a backend that is made of `parts`, with items of the type `item`.
    pub fn of_parts<'a>(parts: impl Iterator<Item = &'a Self>, item: ValueType) -> Self {
        let none = Self { reads_application_set: false, item, ..Self::default() };
        parts.fold(none, |whole, part| Self {
            reads_application_set: whole.reads_application_set || part.reads_application_set,
            takes_notes: whole.takes_notes || part.takes_notes,
            ..whole
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_needs_what_a_part_needs() {
        let nothing = || Nature { reads_application_set: false, gets_old: false, ..Nature::default() };
        let [reader, noter] =
            [Nature { reads_application_set: true, ..nothing() }, Nature { takes_notes: true, ..nothing() }];
        let of = |parts: &[&Nature]| {
            let whole = Nature::of_parts(parts.iter().copied(), ValueType::Anything);
            assert!(whole.gets_old, "a whole lasts as long as the route's `ttl`");
            (whole.reads_application_set, whole.takes_notes)
        };
        assert_eq!(of(&[]), (false, false));
        assert_eq!(of(&[&nothing(), &reader]), (true, false));
        assert_eq!(of(&[&noter, &nothing()]), (false, true));
        assert_eq!(of(&[&noter, &reader]), (true, true));
    }
}
