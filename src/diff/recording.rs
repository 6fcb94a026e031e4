//! Recorded questions with their answers: the answer of `GET /admin/questions`, and the file of the same form.

use anyhow::{anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use argocd::Described;
use domain::{
    document::{
        self, exact,
        yaml::{self, YamlError},
    },
    generator::Parameters,
};

/// The form of a recording. Another form has another number.
const FORMAT: u64 = 1;

/// Questions, and the answers that callers got.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Recording {
    /// The form, [`FORMAT`].
    #[serde(default = "this_format")]
    format: u64,
    /// The version of the gateway that wrote it.
    #[serde(default = "this_version")]
    version: String,
    /// How many questions the gateway knew. Not all need to be listed.
    #[serde(default)]
    pub(crate) total: usize,
    /// The questions, the most recent first.
    pub(crate) questions: Vec<Recorded>,
    /// The ApplicationSets that sent the questions, if the gateway could read them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) application_sets: Vec<Described>,
    /// Why the gateway could not read the ApplicationSets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) application_sets_error: Option<String>,
}

/// A question, and the answer that callers got.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Recorded {
    /// The route that answered. Without it, the call's path names no route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) route: Option<String>,
    /// Whether the route was picked by its `match`, not by the path of the call.
    #[serde(default)]
    pub(crate) by_match: bool,
    /// The ApplicationSets that sent it: names, or namespaces and names with a `/` between them.
    // Recordings of earlier builds have `askedBy` and `askedAt`.
    #[serde(default, alias = "askedBy")]
    pub(crate) requesters: Vec<String>,
    /// The input parameters.
    #[serde(default)]
    #[serde(deserialize_with = "exact::read")]
    pub(crate) input: Parameters,
    /// When a caller last waited for the answer.
    #[serde(default, alias = "askedAt", skip_serializing_if = "Option::is_none")]
    pub(crate) queried_at: Option<String>,
    /// The parameter sets that callers got; none if there never was an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "exact::read")]
    pub(crate) sets: Option<Vec<Parameters>>,
    /// Why the last run failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failing: Option<String>,
    /// The key of the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// The key of its lineage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lineage: Option<String>,
    /// The backend's notes with the answers, for the next run.
    #[serde(default, skip_serializing_if = "Notes::is_empty")]
    pub(crate) notes: Notes,
}

/// A backend's notes with earlier answers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Notes {
    /// With the last answer to the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) own: Option<Value>,
    /// With the last answer of the lineage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lineage: Option<Value>,
}

impl Notes {
    const fn is_empty(&self) -> bool {
        self.own.is_none() && self.lineage.is_none()
    }
}

const fn this_format() -> u64 {
    FORMAT
}

fn this_version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

impl Recording {
    /// A recording of `questions`, of which the gateway has `total`.
    #[must_use]
    pub(crate) fn new(questions: Vec<Recorded>, total: usize) -> Self {
        Self {
            format: FORMAT,
            version: this_version(),
            total,
            questions,
            application_sets: Vec::new(),
            application_sets_error: None,
        }
    }

    /// Whether `text` is meant as a recording, not as a configuration.
    #[must_use]
    pub(crate) fn is_meant_by(document: &Value) -> bool {
        document.get("questions").is_some()
    }

    /// Reads `document`.
    ///
    /// # Errors
    /// When it is not a recording, or is one of another version.
    pub(crate) fn of(document: Value) -> anyhow::Result<Self> {
        let own = this_version();
        if let Some(format) = document.get("format").filter(|format| **format != FORMAT) {
            let version = document["version"].as_str().unwrap_or("unknown").escape_debug();
            bail!(
                "it has the form {format}, of the version {version}; this is {own}, which reads the form {FORMAT}: use the same version"
            );
        }
        ensure!(
            Self::is_meant_by(&document),
            "it has no `questions`; it may come from another version than {own}, which this is"
        );
        let version = document["version"].as_str().filter(|version| **version != own).map(str::to_owned);
        let mut recording: Self = document::read_object(document).map_err(|why| match version {
            Some(version) => {
                anyhow!(
                    "its questions cannot be read: {why}; version {} wrote it, and this is {own}",
                    version.escape_debug()
                )
            }
            None => anyhow!("its questions cannot be read: {why}"),
        })?;
        recording.total = recording.total.max(recording.questions.len());
        Ok(recording)
    }
}

/// The document in `text`, which is JSON or YAML.
///
/// # Errors
/// When it is neither.
pub(crate) fn parse(text: &str) -> Result<Value, YamlError> {
    if let Ok(document) = document::parse(text.as_bytes()) {
        return Ok(document);
    }
    Ok(yaml::parse_exact(text.as_bytes())?.into_iter().next().unwrap_or(Value::Null))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Recording, String> {
        Recording::of(parse(text).unwrap()).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_recording_written_by_hand_is_read() {
        let recording = read("questions:\n- route: a\n  requesters: [x]\n  input: { b: c }\n").unwrap();
        assert_eq!((recording.questions.len(), recording.total), (1, 1));
        assert_eq!(recording.questions[0].sets, None);
        let again = read(&serde_json::to_string(&recording).unwrap()).unwrap();
        assert_eq!(again.questions[0].input["b"], "c");
    }

    #[test]
    fn another_version_is_reported() {
        let other = read(r#"{"format": 2, "version": "9.1.0", "questions": []}"#).unwrap_err();
        assert!(other.contains("the form 2, of the version 9.1.0"), "{other}");
        assert!(read("{}").unwrap_err().contains("another version"));
        let newer = read(r#"{"format": 1, "version": "9.1.0", "questions": [], "more": 1}"#).unwrap_err();
        assert!(newer.contains("more") && newer.contains("version 9.1.0 wrote it, and this is "), "{newer}");
        let unknown = read("questions: [{ rute: a }]").unwrap_err();
        assert!(unknown.contains("rute"), "{unknown}");
    }
}
