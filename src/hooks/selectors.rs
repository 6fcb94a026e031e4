//! The questions that mappings select by route and parameters. Many are found with few comparisons.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::domain::generator::{Question, Selector};

/// How many sets of parameter names are remembered. A mapping has few; only a sender who chooses the names has more.
const MAX_SHAPES: usize = 256;

/// The route, and the names of the parameters in order.
type Shape = (Option<String>, Vec<String>);

/// Selectors, each as the values of its parameters, by their names.
#[derive(Debug, Default)]
pub(super) struct Selectors(HashMap<Shape, HashSet<String>>);

impl Selectors {
    /// Adds `selector`. An ApplicationSet is not compared: mappings name none.
    pub(super) fn add(&mut self, selector: &Selector) {
        let mut names: Vec<String> = selector.parameters.keys().cloned().collect();
        names.sort_unstable();
        let values = canonical(names.iter().filter_map(|name| selector.parameters.get(name)));
        self.insert((selector.route.clone(), names), [values]);
    }

    pub(super) fn extend(&mut self, other: &Self) {
        for (shape, values) in &other.0 {
            self.insert(shape.clone(), values.iter().cloned());
        }
    }

    fn insert(&mut self, shape: Shape, values: impl IntoIterator<Item = String>) {
        if self.0.len() < MAX_SHAPES || self.0.contains_key(&shape) {
            self.0.entry(shape).or_default().extend(values);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.values().map(HashSet::len).sum()
    }

    /// Their size, in bytes.
    pub(super) fn size(&self) -> usize {
        self.0.values().flatten().map(String::len).sum()
    }

    /// Those that select `question`: their shape, and their values.
    pub(super) fn matching<'a>(&'a self, question: &'a Question) -> impl Iterator<Item = (&'a Shape, String)> + 'a {
        let is_meant = |route: &Option<String>| route.as_ref().is_none_or(|route| **route == *question.route);
        self.0.iter().filter(move |((route, _), _)| is_meant(route)).filter_map(|(shape, all)| {
            let values: Option<Vec<&Value>> = shape.1.iter().map(|name| question.parameters.get(name)).collect();
            let values = canonical(values?.into_iter());
            all.contains(&values).then_some((shape, values))
        })
    }
}

/// The values as JSON, with the keys of every object in order.
fn canonical<'a>(values: impl Iterator<Item = &'a Value>) -> String {
    let mut list: Value = values.cloned().collect();
    list.sort_all_objects();
    list.to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn selector(route: Option<&str>, parameters: &Value) -> Selector {
        let parameters = parameters.as_object().unwrap().clone();
        Selector { route: route.map(str::to_owned), parameters, ..Selector::default() }
    }

    fn question(parameters: &Value) -> Question {
        let parameters = Arc::new(parameters.as_object().unwrap().clone());
        Question { route: "r".into(), application_set: None, parameters }
    }

    /// The index finds what [`Selector::selects`] selects.
    #[test]
    fn the_index_selects_as_a_selector_does() {
        let parameters = [
            json!({}),
            json!({"a": 1}),
            json!({"a": "1"}),
            json!({"a": 1.0}),
            json!({"a": null}),
            json!({"b": 2, "a": 1}),
            json!({"a": {"x": 1, "y": [2]}}),
            json!({"a": {"y": [2], "x": 1}}),
            json!({"a,b": 1}),
        ];
        for route in [None, Some("r"), Some("s")] {
            for wanted in &parameters {
                let selector = selector(route, wanted);
                let mut selectors = Selectors::default();
                selectors.add(&selector);
                for has in &parameters {
                    let question = question(has);
                    let is_found = selectors.matching(&question).next().is_some();
                    assert_eq!(is_found, selector.selects(&question), "{route:?} {wanted} {has}");
                }
            }
        }
    }

    #[test]
    fn equal_selectors_are_one_and_shapes_are_bounded() {
        let mut selectors = Selectors::default();
        (0..1000).for_each(|n| selectors.add(&selector(None, &json!({"b": 1, "a": n % 10}))));
        assert_eq!(selectors.len(), 10);
        (0..1000).for_each(|n| selectors.add(&selector(None, &json!({format!("k{n}"): 1}))));
        assert_eq!(selectors.len(), 10 + MAX_SHAPES - 1);
        assert!(selectors.size() < 10_000);
    }
}
