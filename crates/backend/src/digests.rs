//! The kind `digests`: the images that CI built, and passed, for a commit. Up to four witnesses are asked: the registry says that
//! an image exists, the image's label names its commit, CI says that the commit passed, and a signature says who vouches for it. Named [`images`] make one
//! parameter set; a [`list`] makes one of each tag that it selects. All or none: if one witness does not know, the whole
//! answer is *unknown*.

pub mod commit;
mod decision;
mod finding;
mod fingerprint;
mod found;
pub mod gate;
pub mod images;
pub mod list;
mod note;
pub mod revision;
mod signatures;
mod source;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use self::{
    decision::OnMissing,
    gate::GateConfig,
    images::Images,
    list::{List, ListConfig},
    revision::RevisionConfig,
    source::ImageConfig,
};
use super::{Backend, BuildContext, ITEMS, KindConfig, Reached};
use domain::{
    error::BackendError,
    generator::{Outcome, Query, Trust},
    problem::{Path, Problems},
};
use lang::scope::ValueType;
use signature::{ProvenanceConfig, SignatureConfig};

/// How long a digest that was looked up for one question is reused for others, at most.
const SHARED_FOR: Duration = Duration::from_secs(30);

/// Images, or a list of tags; and the conditions for using them.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "DigestsBackend")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The images by the name that `output` uses for them: one parameter set with all of them.
    #[serde(default)]
    pub images: IndexMap<String, ImageConfig>,
    /// Repositories and tags: one parameter set for each that is selected. In place of `images`.
    pub list: Option<ListConfig>,
    /// The commit that the images must have been built from, by their labels.
    pub revision: Option<RevisionConfig>,
    /// Asks CI whether the commit passed. Digests of a commit that did not pass are never answered.
    pub gate: Option<GateConfig>,
    /// Who must have signed the images, or the images of a list's tags. An image without a signature is not built yet.
    pub signature: Option<SignatureConfig>,
    /// What the signed provenance of the images must say. The commit that it proves takes the place of the label's.
    pub provenance: Option<ProvenanceConfig>,
    /// What to answer while the images are not built.
    #[serde(default)]
    pub on_missing: OnMissing,
}

/// The backend, in one of its two forms.
#[derive(Debug)]
pub enum Digests {
    /// Named images.
    Images(Images),
    /// A list of tags.
    List(List),
}

impl Digests {
    /// Parses what is configured.
    pub fn build(config: &Config, context: BuildContext<'_>, path: &Path, problems: &mut Problems) -> Option<Self> {
        // It asks about the call, and does not look at the items of a step before it.
        let scope = &context.scope.without(ITEMS);
        let context = BuildContext { scope, ..context };
        let Some(list) = &config.list else {
            return Some(Self::Images(Images::build(config, context, path, problems)?));
        };
        let others = [
            ("images", !config.images.is_empty()),
            ("revision", config.revision.is_some()),
            ("gate", config.gate.is_some()),
            ("onMissing", config.on_missing != OnMissing::default()),
        ];
        for (key, _) in others.into_iter().filter(|(_, is_set)| *is_set) {
            problems.error_with_help(
                &path.key(key),
                format!("`{key}` does not go with `list`"),
                "a list answers all tags that exist; to ask about one commit and its CI, use `images`",
            );
        }
        Some(Self::List(List::build(config, list, context, path, problems)?))
    }
}

impl KindConfig for Config {
    fn build(&self, context: BuildContext<'_>, path: &Path, problems: &mut Problems) -> Option<Arc<dyn Backend>> {
        Some(Arc::new(Digests::build(self, context, path, problems)?))
    }

    fn takes_notes(&self) -> bool {
        self.list.is_none()
    }

    fn reads_items(&self) -> bool {
        false
    }
}

#[async_trait]
impl Backend for Digests {
    async fn resolve(&self, query: &Query) -> Result<Outcome, BackendError> {
        match self {
            Self::Images(images) => images.resolve(query).await,
            Self::List(list) => list.resolve(query).await,
        }
    }

    fn item(&self) -> ValueType {
        match self {
            Self::Images(images) => images.item(),
            Self::List(_) => List::item(),
        }
    }

    fn reads_application_set(&self) -> bool {
        match self {
            Self::Images(images) => images.reads_application_set(),
            Self::List(list) => list.reads_application_set(),
        }
    }

    fn takes_notes(&self) -> bool {
        match self {
            Self::Images(_) => true,
            Self::List(list) => list.takes_notes(),
        }
    }

    fn trust(&self) -> Trust {
        match self {
            Self::Images(images) => images.trust(),
            Self::List(list) => list.trust(),
        }
    }

    async fn reach(&self, deadline: Instant) -> Vec<Reached> {
        match self {
            Self::Images(images) => images.reach(deadline).await,
            Self::List(_) => Vec::new(),
        }
    }

    fn forget(&self) {
        match self {
            Self::Images(images) => images.forget(),
            Self::List(list) => list.forget(),
        }
    }
}

/// How old a digest that another question looked up may be, on a route whose answers are fresh for `ttl`.
fn shared_for(ttl: Duration) -> Duration {
    (ttl / 2).min(SHARED_FOR)
}
