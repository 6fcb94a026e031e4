//! Answers of sources: a program's output, a plugin's body. The judge sees what is accepted, as Argo CD will get it.

use std::sync::{Arc, LazyLock};

use backend::{getparams, script::Protocol};
use domain::{
    document::excerpt,
    generator::{ParameterSet, Query},
    problem::{Path, Problems},
    secret::Secrets,
};
use engine::{
    cache::Encoded,
    shape::{Nulls, Shape, ShapeConfig},
};
use futures_util::FutureExt as _;
use lang::{evaluator::Evaluator, scope::NameScope};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::{
    argo::{Verdict, evaluate},
    messages::is_one_line,
    numbers::as_the_library_writes,
};

/// An output is a whole list in its format, or an error, and never blank. Two formats that both read it read the same.
pub(super) fn script_output(data: &[u8]) {
    let read = |protocol: Protocol| match protocol.read(data, &Secrets::default()) {
        Ok(reading) => Some(reading.items),
        Err(error) => {
            is_one_line(&error.message);
            None
        }
    };
    let [json, lines, yaml, krm] = [Protocol::Json, Protocol::JsonLines, Protocol::Yaml, Protocol::Krm].map(read);
    if let Some(items) = &json {
        let document: Value = serde_json::from_slice(data).expect("what is accepted is JSON");
        let list = document.as_array().or_else(|| called(called(&document, "output")?, "parameters")?.as_array());
        let items_again: Vec<Value> = items.iter().map(|item| as_the_library_writes(&item.0)).collect();
        assert_eq!(list, Some(&items_again));
        // The same list in YAML, if its numbers and texts are written as YAML demands.
        let is_list = document.is_array();
        assert!(!is_list || yaml.as_ref().is_none_or(|yaml| yaml == items), "{yaml:?} in YAML, {items:?} in JSON");
    }
    for items in [json, lines, yaml, krm].into_iter().flatten() {
        assert!(!data.trim_ascii().is_empty(), "what is blank is a list");
        assert!(!items.is_empty() || data.contains(&b'['), "an empty list that nobody wrote");
        is_served(&items);
    }
}

/// The value of `name` in an object, in any case, as Argo CD finds it.
fn called<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let is_called = |key: &str| key.replace('ſ', "s").eq_ignore_ascii_case(name);
    object.as_object()?.iter().find(|(key, _)| is_called(key)).map(|(_, value)| value)
}

/// Whatever is accepted of a plugin is what Argo CD itself would read of it.
pub(super) fn plugin_answer(data: &[u8]) {
    let items = match getparams::read(data, || excerpt(data, 9)) {
        Ok(items) => items,
        Err(error) => return is_one_line(&error.message),
    };
    let keys = |map: &Map<String, Value>| map.keys().cloned().collect::<Vec<_>>();
    let of_argo = match evaluate(200, &[], data) {
        Verdict::Parameters(list) => list.iter().map(keys).collect(),
        Verdict::ExplicitlyEmpty => Vec::new(),
        other => panic!("the gateway reads {items:?}, and Argo CD {other:?}"),
    };
    assert_eq!(items.iter().map(|item| keys(&item.0)).collect::<Vec<_>>(), of_argo);
    is_served(&items);
}

/// Panics unless Argo CD gets `items` or an error, and the cache returns them.
fn is_served(items: &[ParameterSet]) {
    static SHAPES: LazyLock<[Shape; 2]> = LazyLock::new(|| {
        [true, false].map(|stringify| {
            let config = ShapeConfig { output: None, echo: &[], stringify, nulls: Nulls::Drop };
            Shape::build(config, &NameScope::input(), &Evaluator::none(), &Path::root(), &mut Problems::default())
        })
    });
    let query = Query::new("fuzz".into(), Arc::default(), Instant::now());
    for shape in &*SHAPES {
        let Ok(shaped) = shape.apply(items.to_vec(), &query).now_or_never().unwrap() else { continue };
        let encoded = Encoded::encode(&shaped).unwrap();
        match evaluate(200, &[], encoded.body()) {
            Verdict::Parameters(list) => assert_eq!(list.len(), items.len()),
            Verdict::ExplicitlyEmpty => assert!(items.is_empty(), "Argo CD reads nothing of {items:?}"),
            other => panic!("Argo CD makes {other:?} of {items:?}"),
        }
        assert_eq!(encoded.decode(), shaped, "the cache gives something else back");
    }
}
