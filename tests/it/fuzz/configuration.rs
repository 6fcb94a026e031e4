//! The configuration, and the two languages in it.

use std::{
    path::Path,
    sync::{Arc, LazyLock},
};

use appset_gateway::{
    app::App,
    config::{Loaded, Report},
};
use domain::{clock::SystemClock, document::Document, file::base_dir::BaseDir};
use lang::{
    expression::Expression,
    scope::NameScope,
    template::{Template, ValueContext},
};
use minijinja::context;
use serde_json::{Value, json};

use super::messages::is_one_line;

/// The name of the file.
const FILE: &str = "gateway.yaml";

/// A configuration becomes a gateway, or problems with a place in it. Both can be printed.
pub(super) fn config(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let base = BaseDir::new("/nonexistent");
    let built = Loaded::parse(FILE, text.to_owned(), base)
        .and_then(|loaded| App::build(loaded, Arc::new(SystemClock), Path::new("/proc/self/exe")));
    match built {
        Ok((app, report)) => {
            assert!(!report.has_errors() && app.setup().routes.iter().count() > 0);
            is_placed(&report, text);
        }
        Err(report) => {
            assert!(report.has_errors(), "refused without a reason");
            is_placed(&report, text);
        }
    }
}

/// Panics unless each finding has a place in `text`, and all can be printed.
fn is_placed(report: &Report, text: &str) {
    // In YAML, a carriage return alone ends a line.
    let text = text.replace("\r\n", "\n");
    let lines: Vec<&str> = text.split(['\n', '\r']).collect();
    for finding in report.to_json().as_array().unwrap() {
        let number = |key: &str| usize::try_from(finding[key].as_u64().unwrap()).unwrap();
        let (line, column) = (number("line"), number("column"));
        assert!((1..=lines.len() + 1).contains(&line), "{finding} of {} lines", lines.len());
        let width = lines.get(line - 1).map_or(0, |line| line.chars().count());
        assert!((1..=width + 1).contains(&column), "{finding} of {width} columns");
        is_one_line(finding["message"].as_str().unwrap());
    }
    assert_eq!(report.to_string().is_empty(), report.is_empty());
    assert_eq!(report.lines().is_empty(), report.is_empty());
}

/// A template gives text or an error, within its fuel, and uses only the names that it names.
pub(super) fn template(data: &[u8]) {
    let Ok(source) = str::from_utf8(data) else { return };
    for context_kind in [ValueContext::Text, ValueContext::Url, ValueContext::Reference] {
        let template = match Template::parse(source, context_kind, &NameScope::input()) {
            Ok(template) => template,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                continue;
            }
        };
        let context = |secret: &str| {
            context! {
                params => context! { branch => "feat/x", number => 12, list => [1, 2], secret },
                applicationSet => "previews",
                hidden => secret,
            }
        };
        let rendered = template.render(&context("one"));
        if let Err(refusal) = &rendered {
            is_one_line(&refusal.message);
        }
        let names: Vec<&str> = template.names().collect();
        // `params` alone names all parameters.
        if !names.iter().any(|name| matches!(*name, "params" | "params.secret")) {
            assert_eq!(template.render(&context("two")), rendered, "{source:?} looks at more than {names:?}");
        }
        if let (Ok(text), ValueContext::Reference) = (&rendered, context_kind) {
            assert!(!source.contains("{{") || text.len() >= template.fixed_prefix().len());
        }
    }
}

/// The first line is an expression, the rest a document. An expression gives the same result however it is evaluated.
pub(super) fn expression(data: &[u8]) {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(
        || json!({"items": [{"id": "a", "n": 1, "ok": true, "tags": ["x"]}, {"id": "b", "n": 2.5, "o": {"z": null}}]}),
    );
    let Ok(text) = str::from_utf8(data) else { return };
    let (source, document) = text.split_once('\n').unwrap_or((text, ""));
    let document: Value = serde_json::from_str(document).unwrap_or_else(|_| DOCUMENT.clone());
    let Ok(expression) = Expression::compile(source) else { return };
    // The time for this has no limit.
    if expression.is_nested() {
        return;
    }
    let variables = [("body", &Document::from(&document)), ("params", &Document::from(&*DOCUMENT))];
    let result = expression.evaluate(&variables);
    if let Err(error) = &result {
        is_one_line(&error.to_string());
    }
    let Ok(wrapped) = Expression::compile(&format!("[{source}\n][0]")) else { return };
    if let (Ok(result), Ok(wrapped)) = (&result, &wrapped.evaluate(&variables)) {
        assert_eq!(result.to_string(), wrapped.to_string(), "{source}");
    }
}
