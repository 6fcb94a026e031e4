//! Distinguishes most questions from another one without opening them. An event about one element is compared with each answer in memory, and to read the
//! JSON of thousands of them costs more than all else that it causes.

use crate::cache::PackedQuestion;
use domain::generator::Selector;

/// Equal for equal questions, whatever the order of the keys in their JSON: the lengths and the sums of the bytes of their parameters and their part.
/// Different questions may have the same.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outline([(usize, u64); 2]);

impl Outline {
    /// That of the one question that `selector` selects. `None`: it may select several.
    pub(super) fn of_only(selector: &Selector) -> Option<Self> {
        let parameters = serde_json::to_string(&selector.parameters).ok().filter(|_| selector.is_exact)?;
        let part = selector.part.as_ref().map(serde_json::to_string).transpose().ok()?;
        Some(Self([parameters.as_str(), part.as_deref().unwrap_or_default()].map(measured)))
    }

    /// That of `question`.
    pub(super) fn of(question: &PackedQuestion) -> Self {
        Self([question.parameters(), question.part().unwrap_or_default()].map(measured))
    }
}

fn measured(text: &str) -> (usize, u64) {
    (text.len(), text.bytes().map(u64::from).sum())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Value;

    use super::*;
    use domain::generator::{Element, Part, Question};

    fn question(parameters: &str, item: Option<&str>) -> Question {
        let parameters: Value = serde_json::from_str(parameters).unwrap();
        let element = |item| Element { id: r#"["a"]"#.into(), item: Arc::new(serde_json::from_str(item).unwrap()) };
        Question {
            route: "r".into(),
            application_set: None,
            parameters: Arc::new(parameters.as_object().unwrap().clone()),
            part: item.map(|item| Part::Element(element(item))),
        }
    }

    #[test]
    fn equal_questions_have_one_outline_and_most_others_another() {
        let asked = question(r#"{"a":1.10,"b":"ü"}"#, Some(r#"{"sha":"ab","number":12}"#));
        let is_like = |other: &Question| {
            let only = Outline::of_only(&Selector::only(&asked)).unwrap();
            let (is_like, is_selected) =
                (only == Outline::of(&PackedQuestion::from(other)), Selector::only(&asked).selects(other));
            assert!(is_like || !is_selected, "{other:?}");
            is_like
        };
        assert!(is_like(&asked));
        assert!(is_like(&question(r#"{"b":"ü","a":1.10}"#, Some(r#"{"number":12,"sha":"ab"}"#))), "other orders");
        for other in [
            question(r#"{"a":1.1,"b":"ü"}"#, Some(r#"{"sha":"ab","number":12}"#)),
            question(r#"{"a":1.10,"b":"ü"}"#, Some(r#"{"sha":"ab","number":13}"#)),
            question(r#"{"a":1.10,"b":"ü"}"#, None),
        ] {
            assert!(!is_like(&other), "{other:?}");
        }
        assert_eq!(Outline::of_only(&Selector { is_exact: false, ..Selector::only(&asked) }), None);
    }
}
