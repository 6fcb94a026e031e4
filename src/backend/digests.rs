//! `digests`: what CI built, and passed, for a commit. Three witnesses are asked: the registry says that an image is there,
//! its label says for which commit, CI says that the commit passed. Named [`images`] make one parameter set; a [`list`] makes
//! one of each tag that it selects. All or none: one witness that does not know makes the whole answer *unknown*.

pub mod commit;
mod decision;
mod finding;
mod fingerprint;
pub mod gate;
pub(crate) mod images;
pub mod list;
mod note;
pub(crate) mod revision;
mod source;

use std::time::Duration;

use async_trait::async_trait;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use self::{
    decision::OnMissing,
    gate::GateConfig,
    images::Images,
    list::{List, ListConfig},
    revision::RevisionConfig,
    source::ImageConfig,
};
use super::{Backend, BuildContext};
use crate::domain::{
    error::BackendError,
    generator::{Outcome, Query},
    problem::{Path, Problems},
};

/// For how long, at most, a digest is used that was looked up for another question.
const SHARED_FOR: Duration = Duration::from_secs(30);

/// Images, or a list of tags; and who must vouch for them.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "DigestsBackend")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Config {
    /// The images by the name that `output` uses for them: one parameter set with all of them.
    #[serde(default)]
    pub(crate) images: IndexMap<String, ImageConfig>,
    /// Repositories and tags: one parameter set for each that is selected. In place of `images`.
    pub(crate) list: Option<ListConfig>,
    /// For which commit the images must have been built, by their labels.
    pub(crate) revision: Option<RevisionConfig>,
    /// Whether CI passed the commit; a digest of one that it did not pass is never answered.
    pub(crate) gate: Option<GateConfig>,
    /// What to answer while the images are not built.
    #[serde(default)]
    pub(crate) on_missing: OnMissing,
}

/// One of the two forms.
#[derive(Debug)]
pub(crate) enum Digests {
    /// Named images.
    Images(Images),
    /// A list of tags.
    List(List),
}

impl Digests {
    /// Parses what is configured.
    pub(crate) fn build(
        config: &Config,
        context: BuildContext<'_>,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<Self> {
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
                "a list says what is there; what CI passed for one commit is asked with `images`",
            );
        }
        Some(Self::List(List::build(list, context, &path.key("list"), problems)))
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

    fn reads_application_set(&self) -> bool {
        match self {
            Self::Images(images) => images.reads_application_set(),
            Self::List(list) => list.reads_application_set(),
        }
    }

    fn takes_notes(&self) -> bool {
        matches!(self, Self::Images(_))
    }

    fn forget(&self) {
        match self {
            Self::Images(images) => images.forget(),
            Self::List(list) => list.forget(),
        }
    }
}

/// How old a digest may be that somebody else looked up, where the route's answers are fresh for `ttl`.
fn shared_for(ttl: Duration) -> Duration {
    (ttl / 2).min(SHARED_FOR)
}
