//! The cases of the suite: questions, and the expectations of their answers.

use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::{Value, json};

use domain::{document::yaml, generator::Parameters};

/// A file with cases.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Cases {
    cases: Vec<Case>,
}

/// A question.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Case {
    /// The name in reports.
    pub name: String,
    /// `applicationSetName`.
    #[serde(default)]
    pub application_set: String,
    /// `input.parameters`.
    #[serde(default)]
    pub parameters: Parameters,
    /// The parameter sets that the answer must have. Any unless set.
    pub expect: Option<Vec<Parameters>>,
    /// How many parameter sets the answer must have. Any number unless set.
    pub sets: Option<usize>,
    /// Whether the question is a bad one, which must get an error.
    #[serde(default)]
    pub error: bool,
}

impl Case {
    /// The body of Argo CD's request.
    pub fn body(&self) -> String {
        let name = if self.application_set.is_empty() { "conformance" } else { &self.application_set };
        let input = if self.parameters.is_empty() { json!({}) } else { json!({"parameters": self.parameters}) };
        format!("{}\n", json!({"applicationSetName": name, "input": input}))
    }
}

/// The cases in `file`. Without a file, one question without parameters.
///
/// # Errors
/// When the file cannot be read, or holds no cases.
pub fn read(file: Option<&Path>) -> anyhow::Result<Vec<Case>> {
    let Some(file) = file else { return Ok(vec![Case { name: "no parameters".to_owned(), ..Case::default() }]) };
    let shown = file.display();
    let text = domain::file::read(file).map_err(|why| anyhow::anyhow!("cannot read {shown}: {why}"))?;
    let documents = yaml::parse(text.as_bytes()).map_err(|why| anyhow::anyhow!("{shown}: {why}"))?;
    let document = documents.into_iter().next().unwrap_or(Value::Null);
    let Cases { cases } = serde_json::from_value(document).with_context(|| format!("{shown} holds no cases"))?;
    anyhow::ensure!(cases.iter().any(|case| !case.error), "{shown} has no case without `error: true`");
    Ok(cases)
}
