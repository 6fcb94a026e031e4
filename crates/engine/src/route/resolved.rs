//! A query with all that its route derives from it. It is made once, after the call is admitted.

use std::sync::{Arc, OnceLock};

use serde_json::Value;
use tokio::time::Instant;

use crate::{
    cache::{Key, KeyPrefix},
    route::{Route, parts::lineage_names},
};
use domain::{
    document,
    generator::{Before, Parameters, Part, Query, Question, watch::Watch},
};

/// The overhead of one allocation, in bytes.
const ALLOCATION: usize = 16;

/// The keys of a query and of its lineage under another name of its route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherKeys {
    /// The query's key.
    pub key: Key,
    /// The key of its lineage.
    pub lineage: Key,
}

/// An admitted query, its route and its identities.
#[derive(Debug)]
pub struct ResolvedQuery {
    /// The route that answers.
    pub route: Arc<Route>,
    /// The query, as the backend gets it.
    pub query: Query,
    /// The cache key.
    pub key: Key,
    /// The part of the query that is stored with its answer.
    pub question: Question,
    /// Computed when first needed, since a fresh answer from the cache does not need it.
    lineage: OnceLock<Key>,
    /// Computed when first needed, for the same reason. A run needs them several times, and each costs hashes.
    others: OnceLock<Box<[OtherKeys]>>,
}

impl ResolvedQuery {
    /// Resolves `query`, whose parameters `route` admitted.
    #[must_use]
    pub fn new(route: Arc<Route>, query: Query) -> Self {
        let key = route.key(&query);
        Self::with_keys(route, query, key, OnceLock::new())
    }

    fn with_keys(route: Arc<Route>, query: Query, key: Key, lineage: OnceLock<Key>) -> Self {
        let question = Question {
            route: Arc::clone(&route.name),
            application_set: route.depends_on_application_set().then(|| Arc::clone(&query.application_set)),
            parameters: Arc::clone(&query.parameters),
            part: query.part.clone(),
        };
        Self { route, query, key, question, lineage, others: OnceLock::new() }
    }

    /// Resolves `question` again: its deadline is the route's, from now on. `route` answers questions about its part.
    #[must_use]
    pub fn again(route: Arc<Route>, question: &Question) -> Self {
        let application_set = question.application_set.clone().unwrap_or_default();
        let query = Query::new(application_set, Arc::clone(&question.parameters), Instant::now() + route.deadline);
        Self::new(route, Query { part: question.part.clone(), ..query })
    }

    /// The query about `part` of this answer, which `route` answers, and `watch` follows.
    #[must_use]
    pub(crate) fn of_part(&self, route: &Arc<Route>, part: Part, watch: Option<Watch>) -> Self {
        let query = Query { part: Some(part), ..self.query.clone() };
        Self::new(Arc::clone(route), Query { before: Before::default(), watch, ..query })
    }

    /// The key of the whole answer that this query is about, or about a part of.
    #[must_use]
    pub(crate) fn whole_key(&self) -> Key {
        if self.query.part.is_none() {
            return self.key;
        }
        self.route.prefix.key(&Query { part: None, ..self.query.clone() })
    }

    /// The same query with another deadline.
    #[must_use]
    pub(crate) fn again_until(&self, deadline: Instant) -> Self {
        let query = Query { deadline, ..self.query.clone() };
        Self::with_keys(Arc::clone(&self.route), query, self.key, self.lineage.clone())
    }

    /// The key of the query's lineage. It is the query's own key, unless the route names a lineage and the query has all
    /// of its parameters.
    #[must_use]
    pub fn lineage(&self) -> Key {
        *self.lineage.get_or_init(|| self.lineage_by(&self.route.prefix).unwrap_or(self.key))
    }

    /// The key of the query's lineage in keys that begin with `prefix`; `None` if it has no lineage beside its own key.
    fn lineage_by(&self, prefix: &KeyPrefix) -> Option<Key> {
        let names = self.route.lineage.as_deref();
        let is_set = |name: &String| {
            self.query.parameters.get(name).is_some_and(|value| !value.is_null() && value.as_str() != Some(""))
        };
        let names = names.filter(|names| names.iter().all(is_set));
        lineage_names(names, &self.query).map(|names| prefix.lineage(&self.query, &names))
    }

    /// More keys under which the query and its lineage may be remembered, the most likely ones first: those of other names of the route.
    pub fn other_keys(&self) -> impl Iterator<Item = OtherKeys> {
        let keys = |prefix: &KeyPrefix| {
            let key = prefix.key(&self.query);
            OtherKeys { key, lineage: self.lineage_by(prefix).unwrap_or(key) }
        };
        self.others.get_or_init(|| self.route.other_prefixes.iter().map(keys).collect()).iter().copied()
    }

    /// Whether records under `key` are found as those of the query or of its lineage.
    #[must_use]
    pub(crate) fn is_remembered_under(&self, key: &Key) -> bool {
        let is_other = |other: OtherKeys| other.key == *key || other.lineage == *key;
        self.key == *key || self.lineage() == *key || self.other_keys().any(is_other)
    }

    /// Names the query in a message: its key, and the values of the parameters that the lineage names.
    #[must_use]
    pub fn describe(&self) -> String {
        let value = |name: &String| {
            let text = match self.query.parameters.get(name)? {
                Value::String(text) => text.escape_debug().to_string(),
                other => other.to_string(),
            };
            Some(format!("{name}={}, ", text.chars().take(80).collect::<String>()))
        };
        let named: String = self.route.lineage.iter().flatten().filter_map(value).collect();
        let part = self.query.part.as_ref().map(|part| format!("{part}, ")).unwrap_or_default();
        format!("{part}{named}key {}", self.key)
    }
}

/// A [`ResolvedQuery`] without the deadline of its request: the part that is the same for each request with these bytes.
#[derive(Debug)]
pub struct RepeatedQuery {
    route: Arc<Route>,
    application_set: Arc<str>,
    namespace: Option<Arc<str>>,
    parameters: Arc<Parameters>,
    key: Key,
    lineage: OnceLock<Key>,
}

impl RepeatedQuery {
    /// The parts that are the same for each request with the query of `resolved`.
    #[must_use]
    pub fn of(resolved: &ResolvedQuery) -> Self {
        let Query { application_set, namespace, parameters, .. } = &resolved.query;
        Self {
            route: Arc::clone(&resolved.route),
            application_set: Arc::clone(application_set),
            namespace: namespace.clone(),
            parameters: Arc::clone(parameters),
            key: resolved.key,
            lineage: resolved.lineage.clone(),
        }
    }

    /// About how much memory it takes beside itself, in bytes: that of its parameters and names, as if no other query had them too.
    #[must_use]
    pub fn heap_size(&self) -> usize {
        let namespace = self.namespace.as_ref().map_or(0, |name| ALLOCATION + name.len());
        ALLOCATION + self.application_set.len() + namespace + document::memory_of(&self.parameters)
    }

    /// The query of a request that came at `began`.
    #[must_use]
    pub fn resolve(&self, began: Instant) -> ResolvedQuery {
        let Self { route, application_set, namespace, parameters, key, lineage } = self;
        let query = Query::new(Arc::clone(application_set), Arc::clone(parameters), began + route.deadline);
        let query = Query { namespace: namespace.clone(), ..query };
        ResolvedQuery::with_keys(Arc::clone(route), query, *key, lineage.clone())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_takes_more_memory_than_its_text() {
        let size_of_json = |parameters: Value| document::memory_of(parameters.as_object().unwrap());
        assert!(size_of_json(json!({ "a": vec![0; 1000] })) >= 1000 * size_of::<Value>());
        let nested = size_of_json(json!({"a": {"b": {"c": "text"}}}));
        assert!(nested >= 3 * size_of::<(usize, String, Value)>() + "abctext".len());
    }
}
