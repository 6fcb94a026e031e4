//! The kind `digests`: the images that CI built for a commit, if CI passed it. Up to four checks decide: in the registry
//! the image exists, the image's label has its commit, CI passed the commit, and a signature proves its builder. Named [`images`] make one
//! parameter set; a [`list`] makes one of each tag that it selects. All or none: if one check has no clear result, the whole
//! answer is *unknown*.

pub mod commit;
mod fingerprint;
mod found;
pub mod gate;
mod image_verdict;
pub mod images;
pub mod list;
mod note;
mod outcome;
pub mod revision;
mod signatures;
mod source;

use std::{sync::Arc, time::Duration};

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use self::{
    gate::GateConfig,
    images::Images,
    list::{List, ListConfig},
    outcome::OnMissing,
    revision::RevisionConfig,
    source::ImageConfig,
};
use super::{Backend, BuildContext, Building, ITEMS, KindConfig};
use oci::Registries;
use signature::{ProvenanceConfig, SignatureConfig};

/// How long a digest that was looked up for one query is reused for others, at most.
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
    /// Checks whether CI passed the commit. Digests of a commit that did not pass are never answered.
    pub gate: Option<GateConfig>,
    /// The required signers of the images, or of the images of a list's tags. An image without a signature is not built yet.
    pub signature: Option<SignatureConfig>,
    /// The requirements for the signed provenance of the images. The commit that it proves replaces the label's.
    pub provenance: Option<ProvenanceConfig>,
    /// The answer while the images are not built.
    #[serde(default)]
    pub on_missing: OnMissing,
    /// The identity that logs in at the registries of these images: a name from `identities`. It takes the place of the registry's own at
    /// registries of its cloud, and at others whose entry in `registries` names an identity.
    pub(crate) identity: Option<String>,
}

impl KindConfig for Config {
    fn build(&self, building: &mut Building<'_>) -> Option<Arc<dyn Backend>> {
        // It is about the call, and does not look at the items of a step before it.
        let scope = &building.context.scope.without(ITEMS);
        let registries = self.registries(&mut building.key("identity"))?;
        let context = BuildContext { scope, registries: &registries, ..building.context };
        let mut building = building.with(context);
        let Some(list) = &self.list else {
            return Some(Arc::new(Images::build(self, &mut building)?));
        };
        let others = [
            ("images", !self.images.is_empty()),
            ("revision", self.revision.is_some()),
            ("gate", self.gate.is_some()),
            ("onMissing", self.on_missing != OnMissing::default()),
        ];
        for (key, _) in others.into_iter().filter(|(_, is_set)| *is_set) {
            building.key(key).error_with_help(
                format!("`{key}` does not go with `list`"),
                "a list answers all tags that exist; for one commit and its CI, use `images`",
            );
        }
        Some(Arc::new(List::build(self, list, &mut building)?))
    }

    fn reads_items(&self) -> bool {
        false
    }

    fn serves_last_build(&self) -> bool {
        self.list.is_none()
    }
}

impl Config {
    /// The registries as the identity of these images sees them.
    fn registries(&self, building: &mut Building<'_>) -> Option<Registries> {
        let context = building.context;
        let Some(name) = self.identity.as_ref().filter(|_| !context.base.is_offline()) else {
            return Some(context.registries.clone());
        };
        let identity = building.note(context.outbound.identities().named(name))?;
        let registries = context.registries.with_identity(name, &identity);
        let of_list = self.list.iter().flat_map(|list| &list.repositories);
        let references = self.images.values().map(|image| &image.image).chain(of_list);
        // A reference without a fixed host is an error of its own.
        let mut hosts = references.filter_map(|reference| Some(reference.split_once('/')?.0));
        let is_it = |host: &str| registries.identity(host).is_some_and(|used| Arc::ptr_eq(&used, &identity));
        if !hosts.any(is_it) {
            let help = "an identity logs in at registries of its cloud, such as ECR for `aws`, and at others whose entry in `registries` \
                        names an identity";
            building.error_with_help("it logs in at none of the registries here", help);
            return None;
        }
        Some(registries)
    }
}

/// How old a digest that another query looked up may be, on a route whose answers are fresh for `ttl`.
fn shared_for(ttl: Duration) -> Duration {
    (ttl / 2).min(SHARED_FOR)
}
