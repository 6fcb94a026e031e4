//! Parameter sets of objects: one CEL expression over each object.

use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;

use crate::{
    Building, ITEM, ITEMS,
    mapping::{self, Inputs},
};
use domain::{
    document::kind_of,
    error::BackendError,
    generator::{ParameterSet, Query},
};
use lang::{
    evaluator::{Evaluator, Variables},
    expression::Expression,
    scope::ValueType,
};
use source::Load;

/// The variable with one object.
const OBJECT: &str = "object";
/// The variable with the cluster that has the objects.
pub(super) const CLUSTER: &str = "cluster";
/// The variable with all objects, of which an expression of the configuration has no name.
const OBJECTS: &str = "objects";

/// `parameters` unless set, of one cluster and of several.
const DEFAULT: &str = "{'name': object.metadata.name, \
    'namespace': has(object.metadata.namespace) ? object.metadata.namespace : '', \
    'labels': has(object.metadata.labels) ? object.metadata.labels : {}}";
const DEFAULT_OF_CLUSTERS: &str = "{'name': object.metadata.name, \
    'namespace': has(object.metadata.namespace) ? object.metadata.namespace : '', \
    'labels': has(object.metadata.labels) ? object.metadata.labels : {}, \
    'cluster': cluster.name, 'server': cluster.server}";

/// The key `parameters`, compiled.
#[derive(Debug)]
pub(super) struct Mapping {
    /// Over one object, to find the one that does not fit.
    one: Arc<Expression>,
    /// Over all objects at once.
    all: Arc<Expression>,
    evaluator: Evaluator,
    /// The type of a parameter set.
    pub item: ValueType,
}

impl Mapping {
    /// Compiles the expression `source`. `is_of_clusters`: the objects are of several clusters.
    pub(super) fn build(source: Option<&str>, is_of_clusters: bool, building: &mut Building<'_>) -> Option<Self> {
        let usual = if is_of_clusters { DEFAULT_OF_CLUSTERS } else { DEFAULT };
        let written = source.unwrap_or(usual);
        let context = building.context;
        let cluster = ValueType::object(["name", "server", "project", "labels", "annotations"]);
        let scope = context.scope.only(&["params", ITEMS, ITEM]).with_all(&[OBJECT]).with(CLUSTER, cluster);
        let path = building.path.key("parameters");
        let (one, result) = Expression::build(written, &scope, &path, building.problems)?;
        if let ValueType::Plain(what) = &result {
            building.key("parameters").mistake(
                format!("its result is {what}, and an object or a list of objects is expected"),
                "name the value: `{'name': object.metadata.name}`",
            );
        }
        if is_of_clusters && !one.mentions(CLUSTER) {
            building.key("parameters").warning(
                "no value is made of `cluster`, so equal objects of two clusters make the same Application",
                "add one, such as `'cluster': cluster.name`",
            );
        }
        // A comment at the end would hide the parenthesis in the same line.
        let all =
            building.key("parameters").note(Expression::compile(&format!("{OBJECTS}.map({OBJECT}, ({written}\n))")))?;
        let item = if let ValueType::List(item) = result { *item } else { result };
        Some(Self { one: Arc::new(one), all: Arc::new(all), evaluator: context.evaluator.clone(), item })
    }

    /// The parameter sets of `objects`, in their order.
    ///
    /// # Errors
    /// When the expression does not fit an object, which the error names.
    pub(super) async fn sets(
        &self,
        objects: Vec<Value>,
        cluster: &Value,
        query: &Query,
        deadline: Instant,
    ) -> Result<Vec<ParameterSet>, BackendError> {
        if objects.is_empty() {
            return Ok(Vec::new());
        }
        let objects = Arc::new(Value::Array(objects));
        let variables = self.variables(cluster, query).value(OBJECTS, Arc::clone(&objects));
        let inputs = Inputs { variables, load: Load::Unknown };
        let invalid = BackendError::invalid_output;
        let found = mapping::evaluate(&self.evaluator, &self.all, inputs, deadline, invalid).await;
        let found = found.map_err(|error| self.culprit(&objects, cluster, query).unwrap_or(error));
        sets_of(found.map_err(|error| error.within("parameters"))?, &objects)
    }

    /// The error about the first object that the expression does not fit, if that can be found quickly.
    fn culprit(&self, objects: &Value, cluster: &Value, query: &Query) -> Option<BackendError> {
        let variables = self.variables(cluster, query);
        objects.as_array()?.iter().find_map(|object| {
            let result = variables.clone().value(OBJECT, object.clone()).evaluate_small(&self.one)?;
            result.err().map(|why| BackendError::invalid_output(why).within(label(object)))
        })
    }

    fn variables(&self, cluster: &Value, query: &Query) -> Variables {
        mapping::query_variables(query, &self.one).value(CLUSTER, cluster.clone())
    }
}

/// The parameter sets in the results of all `objects`: each is one set, or a list of them.
fn sets_of(results: Value, objects: &Value) -> Result<Vec<ParameterSet>, BackendError> {
    let invalid = |index: usize, what: &str| {
        let of = objects.get(index).map(label).unwrap_or_default();
        let why = format!("parameters: {of}: its result has {what}, and an object or a list of objects is expected");
        BackendError::invalid_output(why)
    };
    let Value::Array(results) = results else { return Err(BackendError::invalid_output("parameters: not a list")) };
    let mut sets = Vec::with_capacity(results.len());
    for (index, result) in results.into_iter().enumerate() {
        let of_object = if let Value::Array(list) = result { list } else { vec![result] };
        for set in of_object {
            match set {
                Value::Object(set) => sets.push(ParameterSet(set)),
                other => return Err(invalid(index, kind_of(&other))),
            }
        }
    }
    Ok(sets)
}

/// `namespace/name` of an object, for messages.
fn label(object: &Value) -> String {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).map(str::escape_debug);
    match (text("/metadata/namespace"), text("/metadata/name")) {
        (Some(namespace), Some(name)) => format!("object {namespace}/{name}"),
        (None, Some(name)) => format!("object {name}"),
        _ => "an object without a name".to_owned(),
    }
}
