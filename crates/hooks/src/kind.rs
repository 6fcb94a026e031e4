//! The kinds of senders: where each puts its proof, and how its events are read.

mod forge;
mod registry;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, header};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{error::EventError, proof::Signature, subject::Subject};

/// The longest id of a delivery that is remembered, in bytes.
const MAX_ID_BYTES: usize = 500;

/// A sender of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// Anything else. `subjects` finds the subjects of an event.
    #[default]
    Generic,
    /// CloudEvents and CDEvents, structured or binary. `subjects` finds the subjects of an event.
    CloudEvents,
    /// GitHub, with the GitHub Container Registry.
    Github,
    /// GitLab.
    Gitlab,
    /// Gitea.
    Gitea,
    /// Forgejo.
    Forgejo,
    /// Bitbucket.
    Bitbucket,
    /// Docker Distribution, the registry of the image `registry`.
    Distribution,
    /// Azure Container Registry.
    Acr,
    /// Harbor.
    Harbor,
    /// Quay.
    Quay,
    /// Docker Hub.
    DockerHub,
    /// Google Artifact Registry, by a push subscription of Pub/Sub.
    ArtifactRegistry,
    /// Amazon ECR, by an API destination of EventBridge.
    Ecr,
    /// JFrog Artifactory.
    Jfrog,
    /// Sonatype Nexus.
    Nexus,
}

/// A text, or a list of texts.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "text, or a list of texts")]
pub enum OneOrMore {
    /// One.
    One(String),
    /// A list.
    List(Vec<String>),
}

impl OneOrMore {
    /// All of them.
    pub(super) fn as_slice(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::List(list) => list,
        }
    }
}

/// How image references name what events name otherwise.
#[derive(Debug, Clone, Copy)]
pub(super) struct Naming<'a> {
    /// The registry's host.
    pub(super) registry: Option<&'a str>,
    /// By the name of a repository in events: where else its images are.
    pub(super) repositories: &'a BTreeMap<String, OneOrMore>,
}

impl Naming<'_> {
    /// Where the images of `repository` are besides its own place: a registry, or a path of this registry.
    fn places(&self, repository: &str) -> Vec<String> {
        let places = self.repositories.get(repository).map(OneOrMore::as_slice).unwrap_or_default();
        let place = |place: &String| {
            let first = place.split('/').next().unwrap_or_default();
            let is_host = first.contains(['.', ':']) || first == "localhost";
            if is_host { Some(place.clone()) } else { self.registry.map(|host| format!("{host}/{place}")) }
        };
        places.iter().filter_map(place).collect()
    }
}

impl Kind {
    /// How it signs bodies.
    pub(super) const fn signature(self) -> Signature {
        match self {
            Self::Github => Signature::Sha256(&["x-hub-signature-256"]),
            Self::Gitea => Signature::Sha256(&["x-gitea-signature"]),
            Self::Forgejo => Signature::Sha256(&["x-forgejo-signature", "x-gitea-signature"]),
            Self::Bitbucket => Signature::Sha256(&["x-hub-signature"]),
            Self::Gitlab | Self::CloudEvents => Signature::Standard,
            Self::Nexus => Signature::Sha1("x-nexus-webhook-signature"),
            _ => Signature::Sha256(&["x-signature"]),
        }
    }

    /// The header for its token.
    pub(super) const fn token_header(self) -> HeaderName {
        match self {
            Self::Gitlab => HeaderName::from_static("x-gitlab-token"),
            Self::Jfrog => HeaderName::from_static("x-jfrog-event-auth"),
            _ => header::AUTHORIZATION,
        }
    }

    /// Whether its bodies have no form of their own.
    pub(super) const fn needs_mapping(self) -> bool {
        matches!(self, Self::Generic | Self::CloudEvents)
    }

    /// Whether its events do not name the registry.
    pub(super) const fn needs_registry(self) -> bool {
        matches!(self, Self::Jfrog | Self::Nexus)
    }

    /// Whether its events name images, in which `registry` can replace the host.
    pub(super) const fn uses_registry(self) -> bool {
        !matches!(self, Self::Generic | Self::CloudEvents | Self::Gitlab | Self::Bitbucket)
    }

    /// Whether its events name a repository of the registry that image references do not name.
    pub(super) const fn uses_repositories(self) -> bool {
        matches!(self, Self::Jfrog | Self::Nexus)
    }

    /// The id of a delivery.
    pub(super) fn delivery(self, headers: &HeaderMap, body: &Value) -> Option<String> {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let field = |pointer: &str| body.pointer(pointer).and_then(Value::as_str);
        let id = match self {
            Self::Github => header("x-github-delivery"),
            Self::Gitlab => {
                header("webhook-id").or_else(|| header("idempotency-key")).or_else(|| header("x-gitlab-event-uuid"))
            }
            Self::Gitea => header("x-gitea-delivery"),
            Self::Forgejo => header("x-forgejo-delivery").or_else(|| header("x-gitea-delivery")),
            Self::Bitbucket => header("x-request-uuid"),
            Self::Acr | Self::Ecr => field("/id"),
            Self::ArtifactRegistry => field("/message/messageId").or_else(|| header("x-goog-pubsub-message-id")),
            // Only the source and the id together are unique (CloudEvents 1.0, "id").
            Self::CloudEvents => {
                let source = header("ce-source").or_else(|| field("/source")).unwrap_or_default();
                let id = header("ce-id").or_else(|| field("/id"));
                return id.map(|id| format!("{source} {id}")).filter(|id| id.len() <= MAX_ID_BYTES);
            }
            Self::Generic => header("webhook-id"),
            Self::Nexus => header("x-nexus-webhook-delivery"),
            Self::Distribution => return registry::distribution_id(body),
            Self::Harbor | Self::Quay | Self::DockerHub | Self::Jfrog => None,
        };
        id.filter(|id| (1..=MAX_ID_BYTES).contains(&id.len())).map(str::to_owned)
    }

    /// The subjects of an event.
    ///
    /// # Errors
    /// When the body is not what this sender sends.
    pub(super) fn subjects(
        self,
        headers: &HeaderMap,
        body: &Value,
        naming: Naming<'_>,
    ) -> Result<Vec<Subject>, EventError> {
        let host = naming.registry;
        if !body.is_object() {
            return Err(EventError::Body("the body is not a JSON object"));
        }
        match self {
            Self::Generic | Self::CloudEvents => Ok(Vec::new()),
            Self::Github => Ok(forge::github(headers, body, host)),
            Self::Gitea | Self::Forgejo => Ok(forge::gitea(body, host)),
            Self::Gitlab => Ok(forge::gitlab(body)),
            Self::Bitbucket => Ok(forge::bitbucket(headers, body)),
            Self::Distribution => registry::distribution(body, host),
            Self::Acr => Ok(registry::acr(body, host)),
            Self::Harbor => Ok(registry::harbor(body, host)),
            Self::Quay => Ok(registry::quay(body, host)),
            Self::DockerHub => Ok(registry::docker_hub(body, host)),
            Self::ArtifactRegistry => registry::artifact_registry(body, host),
            Self::Ecr => Ok(registry::ecr(body, host)),
            Self::Jfrog => Ok(registry::jfrog(body, naming)),
            Self::Nexus => Ok(registry::nexus(body, naming)),
        }
    }
}

/// The text at `pointer` (RFC 6901).
fn text<'v>(body: &'v Value, pointer: &str) -> Option<&'v str> {
    body.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// The items at `pointer`.
fn items<'v>(body: &'v Value, pointer: &str) -> &'v [Value] {
    body.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
