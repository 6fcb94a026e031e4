//! The key `identities`, and the identities that the pod has without it.

use std::{collections::BTreeMap, sync::Arc};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{broken::Broken, context::Context, exchange::Exchanges, pod::Pod};
use domain::{
    clock::Clock,
    file::base_dir::BaseDir,
    problem::{Path, Problems},
};
use outbound::{ANONYMOUS, AutomaticIdentity, ClientOptions, Identities, Identity, NO_IDENTITY, Outbound};

/// An identity at one cloud, by the pod's own means: no secret is stored for it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum IdentityConfig {
    /// An IAM role of AWS.
    #[cfg(feature = "aws")]
    Aws(crate::aws::AwsConfig),
    /// A service account of Google, or a federated identity.
    #[cfg(feature = "google")]
    Google(crate::google::GoogleConfig),
    /// An application or a managed identity of Entra ID, for Azure.
    #[cfg(feature = "azure")]
    Azure(crate::azure::AzureConfig),
}

/// How requests leave, as for everything else.
#[derive(Clone, Copy)]
pub struct Reach<'a> {
    /// The HTTP clients for the clouds' public endpoints. They must neither record replies nor take them from a file.
    pub public: &'a Arc<Outbound>,
    /// The time.
    pub clock: &'a Arc<dyn Clock>,
    /// The folder that relative paths start from.
    pub base: &'a BaseDir,
}

/// The identities of `configs`, and the automatic ones of `pod`. Sends nothing.
pub fn build(
    configs: &BTreeMap<String, IdentityConfig>,
    pod: &Pod,
    reach: Reach<'_>,
    path: &Path,
    problems: &mut Problems,
) -> Identities {
    let metadata = Outbound::for_metadata(Arc::clone(reach.clock));
    let client = |outbound: &Outbound| outbound.client(ClientOptions::default());
    let (Some(client), Some(metadata)) =
        (problems.note(path, client(reach.public)), problems.note(path, client(&metadata)))
    else {
        return Identities::default();
    };
    let exchanges = Exchanges {
        client,
        #[cfg(feature = "azure")]
        public: Arc::clone(reach.public),
        metadata,
        clock: Arc::clone(reach.clock),
        account: ANONYMOUS.into(),
    };
    let context = Context {
        pod,
        exchanges: &exchanges,
        #[cfg(feature = "google")]
        base: reach.base,
        is_lenient: reach.base.is_lenient(),
    };
    let mut named = BTreeMap::new();
    for (name, config) in configs {
        let path = path.key(name);
        if name == NO_IDENTITY || name.is_empty() {
            problems.error(&path, "this name means that no identity is used; take another one");
        }
        named.insert(name.clone(), config.build(&context, &path, problems));
    }
    Identities::new(named, automatic(&context))
}

impl IdentityConfig {
    fn build(&self, context: &Context<'_>, path: &Path, problems: &mut Problems) -> Arc<dyn Identity> {
        #[cfg(not(any(feature = "aws", feature = "google", feature = "azure")))]
        match *self {}
        #[cfg(any(feature = "aws", feature = "google", feature = "azure"))]
        match self {
            #[cfg(feature = "aws")]
            Self::Aws(config) => config.build(context, &path.key("aws"), problems),
            #[cfg(feature = "google")]
            Self::Google(config) => config.build(context, &path.key("google"), problems),
            #[cfg(feature = "azure")]
            Self::Azure(config) => config.build(context, &path.key("azure"), problems),
        }
    }
}

/// The pod's own identity at one cloud, for the registries that the cloud `covers`. `None` if the pod has none there.
#[cfg(any(feature = "aws", feature = "google", feature = "azure"))]
fn automatic_at<E: std::fmt::Display>(
    covers: fn(&str) -> bool,
    identity: Option<Result<Arc<dyn Identity>, E>>,
) -> Option<AutomaticIdentity> {
    // Never anonymous in place of it: the registry has an identity that only fails.
    let identity = identity?.unwrap_or_else(|error| Arc::new(Broken { why: error.to_string(), covers }));
    Some(AutomaticIdentity { covers, identity })
}

/// The pod's own identities, by the registries that they are for.
fn automatic(context: &Context<'_>) -> Vec<AutomaticIdentity> {
    let mut found = Vec::new();
    #[cfg(feature = "aws")]
    found.extend(automatic_at(crate::aws::covers, crate::aws::automatic(context)));
    #[cfg(feature = "google")]
    found.extend(automatic_at(crate::google::covers, crate::google::automatic(context)));
    #[cfg(feature = "azure")]
    found.extend(automatic_at(crate::azure::covers, crate::azure::automatic(context)));
    found
}
