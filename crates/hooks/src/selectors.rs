//! The questions that mappings select by route and parameters. Many are found with few comparisons.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use domain::generator::{Question, Selector};

/// How many sets of parameter names are compared. A mapping has few; only a sender who chooses the names has more.
const MAX_SHAPES: usize = 256;
/// How many routes are remembered with selectors that do not fit.
const MAX_ROUTES: usize = 256;

/// The route, and the names of the parameters in order.
type Shape = (Option<String>, Vec<String>);

/// Selectors, each as the values of its parameters, by their names.
#[derive(Debug, Default)]
pub(super) struct Selectors {
    shapes: HashMap<Shape, HashSet<String>>,
    /// The routes of selectors beyond [`MAX_SHAPES`]. All of their questions count as selected, so that no event is lost.
    routes: HashSet<Option<String>>,
}

impl Selectors {
    /// Adds `selector`. An ApplicationSet is not compared: mappings name none.
    pub(super) fn add(&mut self, selector: &Selector) {
        let mut names: Vec<String> = selector.parameters.keys().cloned().collect();
        names.sort_unstable();
        let values = canonical(names.iter().filter_map(|name| selector.parameters.get(name)));
        self.insert((selector.route.clone(), names), [values]);
    }

    pub(super) fn extend(&mut self, other: &Self) {
        for (shape, values) in &other.shapes {
            self.insert(shape.clone(), values.iter().cloned());
        }
        for route in &other.routes {
            self.insert_route(route.clone());
        }
    }

    fn insert(&mut self, shape: Shape, values: impl IntoIterator<Item = String>) {
        if self.shapes.len() < MAX_SHAPES || self.shapes.contains_key(&shape) {
            self.shapes.entry(shape).or_default().extend(values);
        } else {
            self.insert_route(shape.0);
        }
    }

    fn insert_route(&mut self, route: Option<String>) {
        if self.routes.len() < MAX_ROUTES || self.routes.contains(&route) {
            self.routes.insert(route);
        } else {
            self.routes.insert(None);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shapes.is_empty() && self.routes.is_empty()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.shapes.values().map(HashSet::len).sum::<usize>() + self.routes.len()
    }

    /// Their size, in bytes.
    pub(super) fn size(&self) -> usize {
        self.shapes.values().flatten().chain(self.routes.iter().flatten()).map(String::len).sum()
    }

    /// Whether one of them selects `question`.
    pub(super) fn select(&self, question: &Question) -> bool {
        let is_whole_route = self.routes.iter().any(|route| is_meant(route.as_deref(), question));
        is_whole_route || self.match_values(question)
    }

    /// Whether one of those that are compared selects `question`.
    fn match_values(&self, question: &Question) -> bool {
        let mut of_route = self.shapes.iter().filter(|((route, _), _)| is_meant(route.as_deref(), question));
        of_route.any(|((_, names), all)| {
            let values: Option<Vec<&Value>> = names.iter().map(|name| question.parameters.get(name)).collect();
            values.is_some_and(|values| all.contains(&canonical(values.into_iter())))
        })
    }
}

fn is_meant(route: Option<&str>, question: &Question) -> bool {
    route.is_none_or(|route| route == &*question.route)
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
        Question { route: "r".into(), application_set: None, parameters, part: None }
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
                    let is_found = selectors.select(&question);
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
        assert_eq!(selectors.len(), 10 + MAX_SHAPES - 1 + 1);
        assert!(selectors.size() < 10_000);
    }

    /// A parameter that is not compared makes the selector concern all questions of its route, even if it comes by [`Selectors::extend`], and memory has a bound.
    #[test]
    fn selectors_that_do_not_fit_select_their_route() {
        let many = |route: Option<&str>| {
            let mut selectors = Selectors::default();
            (0..=MAX_SHAPES).for_each(|n| selectors.add(&selector(route, &json!({format!("k{n}"): 1}))));
            selectors
        };
        let other = question(&json!({"another": 1}));
        for (route, is_selected) in [(Some("r"), true), (Some("s"), false), (None, true)] {
            let selectors = many(route);
            assert_eq!(selectors.select(&other), is_selected, "{route:?}");
            let mut both = Selectors::default();
            both.extend(&selectors);
            assert_eq!(both.select(&other), is_selected, "{route:?}");
        }
        let mut fitting = Selectors::default();
        (0..MAX_SHAPES).for_each(|n| fitting.add(&selector(Some("r"), &json!({format!("k{n}"): 1}))));
        assert!(!fitting.select(&other) && fitting.select(&question(&json!({"k7": 1}))));

        let mut routes = many(Some("s"));
        (0..10_000).for_each(|n| routes.add(&selector(Some(&format!("route-{n}")), &json!({"x": n}))));
        assert_eq!(routes.routes.len(), MAX_ROUTES + 1);
        assert!(routes.select(&other), "too many routes are all routes");
    }
}
