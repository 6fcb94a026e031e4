//! Which ApplicationSets there are. A call names an ApplicationSet without its namespace, so a list shows where sets of that name have
//! a plugin generator that points at this gateway.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use http::Method;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::Instant;

use super::{ApiCall, Argocd, deadline};
use domain::error::BackendError;

/// For how long a list is used.
const READ_EVERY: Duration = Duration::from_mins(1);
/// For how long a list is used that lacks a name.
const LACKS_FOR: Duration = Duration::from_secs(5);
/// For how long a list is used in which a namespace failed. Otherwise all that wait for it would wait one after the other.
const FAILS_FOR: Duration = Duration::from_secs(1);
/// How many ApplicationSets one answer has. Their specifications may be large.
const PAGE: &str = "100";
/// The largest answer that is read, in bytes.
const MAX_PAGE_BYTES: usize = 32 * 1024 * 1024;
/// How often a list is restarted because its continuation has expired (410).
const MAX_ATTEMPTS: usize = 3;

/// An ApplicationSet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ApplicationSet {
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) uid: Arc<str>,
}

/// The ApplicationSets that ask this gateway, by name.
#[derive(Debug, Default)]
pub(super) struct Directory {
    sets: HashMap<Arc<str>, Vec<ApplicationSet>>,
    /// Why a namespace could not be read. Its ApplicationSets are those of the list before.
    error: Option<BackendError>,
    /// The namespaces that were read at least once.
    known: HashSet<Arc<str>>,
    read_at: Option<Instant>,
}

/// The ApplicationSets of one name.
#[derive(Debug)]
pub(super) struct Listed {
    /// The known ApplicationSets.
    pub(super) sets: Vec<ApplicationSet>,
    /// Why there may be more.
    pub(super) error: Option<BackendError>,
    /// None is known, and the list is read again after this time.
    pub(super) unlisted: Option<Duration>,
}

#[derive(Deserialize)]
struct Page<I> {
    metadata: PageMetadata,
    items: Vec<I>,
}

#[derive(Deserialize)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    next: String,
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
    #[serde(default)]
    spec: Value,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    namespace: String,
    #[serde(default)]
    uid: String,
}

impl Argocd {
    /// The ApplicationSets that ask this gateway and are called `name`: a name, or a namespace and a name with a `/` between them.
    pub(super) async fn sets(&self, name: &str) -> Listed {
        let (namespace, name) = name.split_once('/').map_or((None, name), |(namespace, name)| (Some(namespace), name));
        let mut directory = self.directory.lock().await;
        let limit = match (directory.sets.contains_key(name), &directory.error) {
            (false, Some(_)) => FAILS_FOR,
            (true, None) => READ_EVERY,
            (true, Some(_)) | (false, None) => LACKS_FOR,
        };
        let age = directory.read_at.map(|at| at.elapsed());
        let left = age.and_then(|age| limit.checked_sub(age)).filter(|left| !left.is_zero());
        if left.is_none() {
            self.list(&mut directory).await;
        }
        let sets: Vec<_> = directory.sets.get(name).into_iter().flatten().cloned().collect();
        let sets: Vec<_> =
            sets.into_iter().filter(|set| namespace.is_none_or(|namespace| *set.namespace == *namespace)).collect();
        let unlisted = left.filter(|_| sets.is_empty());
        // A namespace that was read before has those of then. One that never was may have more.
        let is_whole = self.namespaces.iter().all(|namespace| directory.known.contains(&**namespace));
        let error = directory.error.clone().filter(|_| sets.is_empty() || !is_whole);
        Listed { sets, error, unlisted }
    }

    /// Forgets the list, because an ApplicationSet in it is gone.
    pub(super) async fn forget_sets(&self) {
        self.directory.lock().await.read_at = None;
    }

    /// Reads the list of each namespace. Where that fails, the list before stays.
    async fn list(&self, directory: &mut Directory) {
        let (mut sets, mut error): (HashMap<Arc<str>, Vec<ApplicationSet>>, _) = (HashMap::new(), None);
        let mut known = std::mem::take(&mut directory.known);
        for namespace in &self.namespaces {
            let listed = self.list_of(namespace).await.inspect(|_| _ = known.insert(namespace.as_str().into()));
            let found = listed.unwrap_or_else(|why| {
                tracing::warn!(namespace, error = %why, "the ApplicationSets of a namespace cannot be listed");
                error = Some(why);
                let before = directory.sets.values().flatten();
                before.filter(|set| *set.namespace == **namespace).cloned().collect()
            });
            for set in found {
                sets.entry(Arc::clone(&set.name)).or_default().push(set);
            }
        }
        *directory = Directory { sets, error, known, read_at: Some(Instant::now()) };
    }

    async fn list_of(&self, namespace: &str) -> Result<Vec<ApplicationSet>, BackendError> {
        let ours = |Item { metadata, spec }: Item| {
            self.is_asked_by(&spec).then(|| ApplicationSet {
                namespace: metadata.namespace.into(),
                name: metadata.name.into(),
                uid: metadata.uid.into(),
            })
        };
        self.read_list(namespace, ours).await
    }

    /// Whether an ApplicationSet with the specification `spec` asks this gateway.
    pub(super) fn is_asked_by(&self, spec: &Value) -> bool {
        asks(spec, &self.config_maps)
    }

    /// The results of `take` for the ApplicationSets in `namespace`, page by page.
    ///
    /// # Errors
    /// When not all pages can be read.
    pub(super) async fn read_list<I: DeserializeOwned, T>(
        &self,
        namespace: &str,
        take: impl Fn(I) -> Option<T>,
    ) -> Result<Vec<T>, BackendError> {
        let (mut sets, mut next, mut attempts) = (Vec::new(), String::new(), 1);
        loop {
            let mut query = vec![("limit", PAGE)];
            if !next.is_empty() {
                query.push(("continue", &next));
            }
            let path = ["apis", "argoproj.io", "v1alpha1", "namespaces", namespace, "applicationsets"];
            let call = ApiCall {
                method: Method::GET,
                path: &path,
                query: &query,
                body: None,
                max_bytes: MAX_PAGE_BYTES,
                deadline: deadline(),
                recorded_as: None,
            };
            let right = format!("list applicationsets.argoproj.io in the namespace `{namespace}`");
            let reply = self.send(call, &right, &[410]).await?;
            if reply.status.as_u16() == 410 {
                if attempts == MAX_ATTEMPTS {
                    return Err(BackendError::unavailable(
                        "the list of ApplicationSets expires (410) while it is read",
                    ));
                }
                (sets, next, attempts) = (Vec::new(), String::new(), attempts + 1);
                continue;
            }
            let page: Page<I> = serde_json::from_slice(&reply.body).map_err(|error| {
                BackendError::invalid_output(format!("it is not a list of ApplicationSets: {error}"))
            })?;
            sets.extend(page.items.into_iter().filter_map(&take));
            if page.metadata.next.is_empty() {
                return Ok(sets);
            }
            next = page.metadata.next;
        }
    }
}

/// Whether `part` of an ApplicationSet has a plugin generator with one of `config_maps`. Matrix and merge generators contain
/// generators.
fn asks(part: &Value, config_maps: &[String]) -> bool {
    match part {
        Value::Array(parts) => parts.iter().any(|part| asks(part, config_maps)),
        Value::Object(parts) => {
            let config_map = part.pointer("/plugin/configMapRef/name").and_then(Value::as_str);
            config_map.is_some_and(|name| config_maps.iter().any(|ours| ours == name))
                || parts.values().any(|part| asks(part, config_maps))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_generator_is_found_at_any_depth() {
        let ours = ["gateway".to_owned()];
        let plugin = |name: &str| json!({"plugin": {"configMapRef": {"name": name}, "input": {"parameters": {}}}});
        for (generators, expected) in [
            (json!([plugin("gateway")]), true),
            (json!([plugin("other")]), false),
            (json!([{"matrix": {"generators": [{"pullRequest": {}}, plugin("gateway")]}}]), true),
            (json!([{"merge": {"generators": [{"matrix": {"generators": [plugin("gateway")]}}]}}]), true),
            (json!([{"list": {"elements": [{"configMapRef": {"name": "gateway"}}]}}]), false),
        ] {
            assert_eq!(asks(&json!({"generators": generators}), &ours), expected, "{generators}");
        }
    }
}
