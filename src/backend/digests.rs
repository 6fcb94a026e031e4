//! `digests`: for named images, the digest that each one's tag stands for now. All images or none: a
//! missing tag makes the whole answer *absent*, a registry that fails makes it *unknown*.

pub mod commit;
pub mod gate;
mod source;

use async_trait::async_trait;
use futures_util::future::join_all;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use self::source::Source;
use super::{Backend, Surroundings};
use crate::{
    error::BackendError,
    generator::{Evidence, Outcome, ParameterSet, Parameters, Query, Verdict},
    oci::Registries,
    problem::{Path, Problems},
    template::input_context,
};

/// Images and what to do when one is missing.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "DigestsBackend")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The images by the name that `output` uses for them.
    pub images: IndexMap<String, ImageConfig>,
    /// What a missing tag means.
    #[serde(default)]
    pub on_missing: OnMissing,
}

/// One image.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImageConfig {
    /// `registry/repository:tag`, or `oci:folder:name` for an OCI image layout; a template over
    /// `params` and `applicationSet`. The registry or folder stands in it as it is.
    pub image: String,
}

/// What a missing tag means for the answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnMissing {
    /// An explicit empty list: there is nothing to deploy yet.
    #[default]
    Omit,
    /// An error: the ApplicationSet stays as it is.
    Error,
}

/// The images, parsed.
#[derive(Debug)]
pub struct Digests {
    images: Vec<(String, Source)>,
    registries: Registries,
    on_missing: OnMissing,
}

impl Digests {
    /// Parses the references.
    pub fn build(config: &Config, around: Surroundings<'_>, path: &Path, problems: &mut Problems) -> Option<Self> {
        let path = path.key("images");
        if config.images.is_empty() {
            problems.error_with_help(
                &path,
                "there are no images",
                "name at least one: `images: { app: { image: … } }`",
            );
        }
        let mut images = Vec::new();
        for (name, image) in &config.images {
            let source = Source::parse(&image.image, around.base);
            let source = problems.note(&path.key(name).key("image"), source);
            images.extend(source.map(|source| (name.clone(), source)));
        }
        Some(Self { images, registries: around.registries.clone(), on_missing: config.on_missing })
    }
}

#[async_trait]
impl Backend for Digests {
    async fn resolve(&self, query: &Query) -> Result<Outcome, BackendError> {
        let context = &input_context(query);
        let lookups = self
            .images
            .iter()
            .map(async |(name, source)| (name, source.look_up(context, &self.registries, query.deadline).await));
        let (mut set, mut evidence, mut errors) = (Parameters::new(), Vec::new(), Vec::new());
        for (name, found) in join_all(lookups).await {
            match found {
                Ok(found) => {
                    evidence.push(found.evidence.of(name));
                    set.extend(found.image.map(|image| (name.clone(), Value::Object(image))));
                }
                Err(mut error) => {
                    evidence.extend(error.evidence.drain(..).map(|evidence| evidence.of(name)));
                    errors.push(error.within(format_args!("image {name}")));
                }
            }
        }
        if let Some(first) = errors.first() {
            let messages: Vec<&str> = errors.iter().map(|error| error.message.as_str()).collect();
            return Err(BackendError { kind: first.kind, message: messages.join("; "), evidence });
        }
        if set.len() == self.images.len() {
            return Ok(Outcome::present(ParameterSet(set), evidence));
        }
        match self.on_missing {
            OnMissing::Omit => Ok(Outcome::absent(evidence)),
            OnMissing::Error => {
                let missing = evidence.iter().filter(|evidence| evidence.verdict == Verdict::Absent);
                let told: Vec<String> = missing.map(Evidence::to_string).collect();
                let error = BackendError::invalid_input(format!("not built: {}", told.join("; ")));
                Err(BackendError { evidence, ..error })
            }
        }
    }

    fn reads_application_set(&self) -> bool {
        self.images.iter().any(|(_, source)| source.reads_application_set())
    }
}
