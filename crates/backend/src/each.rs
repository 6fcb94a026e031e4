//! `each`, the last step of a route's pipeline: queries a backend for each item of the steps before it. The engine remembers each element by
//! itself ([`Backend::each`]). Without the engine, as in `diff` and for the candidate of a shadow, all elements are known or the answer is not.

use std::{borrow::Cow, sync::Arc};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::Value;

use super::{
    Backend, BackendConfig, BuildContext, Building, EachFields, ITEM, ITEMS, KINDS, Nature, fetch_watched,
    not_one::NotOne,
};
use domain::{
    error::BackendError,
    generator::{Element, Evidence, Outcome, ParameterSet, Part, Query},
    units::plural,
};
use lang::scope::ValueType;
use source::{ELEMENTS_AT_ONCE, Each, MaxUnknown, first_named};

/// The configuration of the step.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "EachFields")]
pub struct EachConfig {
    pub(super) key: Vec<String>,
    pub(super) max_unknown: Option<MaxUnknown>,
    pub(super) source: Result<Box<BackendConfig>, NotOne>,
}

impl JsonSchema for EachConfig {
    fn schema_name() -> Cow<'static, str> {
        EachFields::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        EachFields::json_schema(generator)
    }
}

impl EachConfig {
    /// Whether a backend below it may serve the last build.
    pub(super) fn serves_last_build(&self) -> bool {
        self.source.as_ref().is_ok_and(|backend| backend.serves_last_build())
    }

    /// The pipeline that ends with this step, after `list`. `raw` is the step's configuration as a document.
    pub(super) fn build(
        &self,
        list: Arc<dyn Backend>,
        raw: &Value,
        building: &mut Building<'_>,
    ) -> Option<EachPipeline> {
        let item = list.nature().item.clone();
        self.check_key(&item, &mut building.key("key"));
        let config = match &self.source {
            Ok(config) => config,
            Err(not_one) => {
                let message = match not_one {
                    NotOne::Missing => "it names no backend",
                    NotOne::Several => "it names several backends",
                };
                building.error_with_help(message, format!("it has exactly one of {}", KINDS.join(", ")));
                return None;
            }
        };
        let context = building.context;
        let scope = &context.scope.without(ITEMS).with(ITEM, item.clone());
        let raw = &serde_json::json!({ "backend": raw });
        let backend = config.build(&mut building.with(BuildContext { raw, scope, is_route: false, ..context }))?;
        let element = OfElement::build(backend, item, config.kind(), building)?;
        let nature = Nature::of_parts([list.nature(), element.nature()].into_iter(), element.nature().item.clone());
        let each = Each {
            kinds: ["pipeline", config.kind()],
            list,
            element: Arc::new(element),
            key: self.key.clone(),
            max_unknown: self.max_unknown.unwrap_or(MaxUnknown::HALF),
            has_item_in_sets: true,
        };
        Some(EachPipeline { each, nature })
    }

    /// Notes a key that no item of the type `item` can have.
    fn check_key(&self, item: &ValueType, building: &mut Building<'_>) {
        if self.key.is_empty() {
            building.error_with_help(
                "the key is empty, so that all items would be one element",
                "name the fields that stay the same in the next list, such as `key: [number]`",
            );
        }
        for (index, name) in self.key.iter().enumerate() {
            if self.key[..index].contains(name) {
                building.index(index).error_with_help(format!("`{name}` is named twice"), "leave one of them out");
            }
            let first = name.split('.').next().unwrap_or_default();
            if let Err(known) = item.field(first) {
                let help = format!("the items of the step before have: {}", known.join(", "));
                building.index(index).error_with_help(format!("no item has `{name}`"), help);
            }
        }
    }
}

/// A pipeline that ends with `each`.
#[derive(Debug)]
pub(super) struct EachPipeline {
    each: Each,
    nature: Nature,
}

/// The sets of all elements of `each`, for whoever does not remember elements. All are known, or it is an error.
///
/// # Errors
/// When the list or an element is unknown.
pub(super) async fn fetch_all(each: &Each, query: &Query) -> Result<Outcome, BackendError> {
    let Outcome { sets, mut evidence, .. } = each.list.fetch(query).await?;
    let elements = each.elements(sets)?;
    let count = elements.len();
    let fetches = elements.into_iter().map(|element| fetch_element(each, query, element));
    let outcomes: Vec<_> = stream::iter(fetches).buffered(ELEMENTS_AT_ONCE).collect().await;
    let (mut sets, mut unknown) = (Vec::new(), Vec::new());
    for outcome in outcomes {
        match outcome {
            Ok(outcome) => {
                sets.extend(outcome.sets);
                evidence.extend(outcome.evidence);
            }
            Err(error) => unknown.push(error),
        }
    }
    if !unknown.is_empty() {
        return Err(several_unknown(unknown, count));
    }
    if sets.is_empty() && evidence.is_empty() {
        evidence.push(Evidence::absent("each, 0 elements", "an explicit empty list"));
    }
    Ok(Outcome::of_sources(sets, evidence))
}

async fn fetch_element(each: &Each, query: &Query, element: Element) -> Result<Outcome, (String, BackendError)> {
    let label = element.label();
    let query = Query { part: Some(Part::Element(element)), ..query.clone() };
    let name = format!("element {label}");
    let fetched = fetch_watched(&*each.element, &name, each.kinds[1], &query).await;
    fetched.map_err(|error| (label, error))
}

#[async_trait]
impl Backend for EachPipeline {
    async fn fetch(&self, query: &Query) -> Result<Outcome, BackendError> {
        fetch_all(&self.each, query).await
    }

    fn nature(&self) -> &Nature {
        &self.nature
    }

    fn each(&self) -> Option<&Each> {
        Some(&self.each)
    }

    fn parts(&self) -> Vec<&dyn Backend> {
        vec![&*self.each.list, &*self.each.element]
    }
}

/// The error of an answer of which `unknown` elements of `all` are not known, by their labels.
fn several_unknown(unknown: Vec<(String, BackendError)>, all: usize) -> BackendError {
    let count = unknown.len();
    let named = first_named(count, unknown.iter().map(|(label, error)| format!("{label}: {}", error.message)));
    let evidence = unknown.iter().flat_map(|(label, error)| error.evidence.iter().map(|each| each.clone().by(label)));
    let evidence = evidence.collect();
    let errors: Vec<BackendError> = unknown.into_iter().map(|(_, error)| error).collect();
    let message = format!("{count} of {all} element{} unknown: {named}", plural(all));
    let error = BackendError::of_all(&errors, evidence).unwrap_or_else(|| BackendError::unavailable(""));
    BackendError { message, ..error }
}

/// The backend of an element: its sets also have the item.
struct OfElement {
    backend: Arc<dyn Backend>,
    nature: Nature,
}

impl OfElement {
    fn build(
        backend: Arc<dyn Backend>,
        item: ValueType,
        kind: &'static str,
        building: &mut Building<'_>,
    ) -> Option<Self> {
        let mut nature = backend.nature().clone();
        if let ValueType::Object(keys) = &mut nature.item
            && keys.insert(ITEM.to_owned(), item).is_some()
        {
            building.key(kind).error_with_help(
                "its parameter sets have the key `item`, which is that of the list's item",
                "give it another name",
            );
            return None;
        }
        Some(Self { backend, nature })
    }
}

#[async_trait]
impl Backend for OfElement {
    async fn fetch(&self, query: &Query) -> Result<Outcome, BackendError> {
        let mut outcome = self.backend.fetch(&Query { items: None, ..query.clone() }).await?;
        let Some(item) = query.item() else {
            return Err(BackendError::invalid_input("an element is queried without its item"));
        };
        for ParameterSet(set) in &mut outcome.sets {
            if set.insert(ITEM.to_owned(), Value::clone(item)).is_some() {
                return Err(BackendError::invalid_output(
                    "its parameter set has the key `item`, which is that of the list's item; give it another name",
                ));
            }
        }
        Ok(outcome)
    }

    fn nature(&self) -> &Nature {
        &self.nature
    }

    fn parts(&self) -> Vec<&dyn Backend> {
        vec![&*self.backend]
    }
}
