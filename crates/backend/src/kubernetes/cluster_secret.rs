//! One of Argo CD's cluster Secrets: which cluster it describes. Source: Argo CD, "Declarative setup", "Clusters". No error quotes a value of a
//! Secret.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use url::Url;
use zeroize::Zeroizing;

use super::{
    cluster_config::ClusterConfig,
    rules::{Rules, unusable},
};
use domain::{document, error::BackendError, secret::Secret};
use outbound::{Outbound, kubernetes::ApiServer, names_user};

/// The URL by which Argo CD and the gateway call the cluster that they are in.
pub(super) const OWN_SERVER: &str = "https://kubernetes.default.svc";
/// The annotation in which `kubectl apply` stores the whole object, with the login.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A cluster, as its Secret describes it.
pub(super) struct ClusterSecret {
    /// The name of the Secret.
    pub secret: String,
    /// The name of the cluster.
    pub name: String,
    /// Its URL, as Argo CD has it.
    pub server: String,
    /// What expressions can use, without any login.
    pub described: Value,
    /// The login, or why there is none.
    config: Result<Zeroizing<Vec<u8>>, &'static str>,
}

impl ClusterSecret {
    /// The cluster that `secret`, an object of the kind `Secret`, describes.
    pub(super) fn read(secret: &Value) -> Self {
        let text = |key: &str| {
            let encoded = secret.pointer(&format!("/data/{key}")).and_then(Value::as_str)?;
            STANDARD.decode(encoded).ok()
        };
        let plain = |key: &str| text(key).and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
        let own = secret.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let server = plain("server").trim_end_matches('/').to_owned();
        let named = [plain("name"), server.clone(), own.clone()].into_iter().find(|name| !name.is_empty());
        let config = match secret.pointer("/data/config") {
            None => Ok(Zeroizing::new(b"{}".to_vec())),
            Some(_) => text("config").map(Zeroizing::new).ok_or("its `config` is not base64"),
        };
        let described = described(&named.clone().unwrap_or_default(), &server, &plain("project"), secret);
        Self { secret: own, name: named.unwrap_or_default(), server, described, config }
    }

    /// The server of the cluster. `own` is that of the gateway's own cluster.
    ///
    /// # Errors
    /// When the Secret has no login that the gateway can use.
    pub(super) fn server(
        &self,
        own: &ApiServer,
        rules: &Rules,
        outbound: &Outbound,
    ) -> Result<(ApiServer, Vec<Secret>), BackendError> {
        self.login(own, rules, outbound)
            .map_err(|error| error.within(format_args!("the cluster Secret {}", self.secret)))
    }

    fn login(
        &self,
        own: &ApiServer,
        rules: &Rules,
        outbound: &Outbound,
    ) -> Result<(ApiServer, Vec<Secret>), BackendError> {
        let config = self.config.as_ref().map_err(|why| unusable(*why))?;
        let config = ClusterConfig::read(config)?;
        if self.server == OWN_SERVER && !config.has_login() {
            return Ok((own.clone(), Vec::new()));
        }
        let url =
            Url::parse(&self.server).ok().filter(|url| matches!(url.scheme(), "http" | "https") && !names_user(url));
        let url = url.ok_or_else(|| unusable("its `server` is not a URL with `https://` and a host"))?;
        config.server(url, rules, outbound)
    }
}

/// What expressions can use of a cluster.
fn described(name: &str, server: &str, project: &str, secret: &Value) -> Value {
    let texts = |path: &str| secret.pointer(path).and_then(Value::as_object).cloned().unwrap_or_default();
    let mut annotations: Map<String, Value> = texts("/metadata/annotations");
    annotations.remove(LAST_APPLIED);
    json!({"name": name, "server": server, "project": project, "labels": texts("/metadata/labels"), "annotations": annotations})
}

/// The own cluster, as Argo CD calls it where no Secret names it.
pub(super) fn own_described() -> Value {
    described("in-cluster", OWN_SERVER, "", &Value::Null)
}

/// A list of cluster Secrets as `record` writes it: without logins.
pub(super) fn without_logins(body: &[u8]) -> Bytes {
    let Ok(mut list) = document::parse(body) else { return Bytes::new() };
    let items = list.get_mut("items").and_then(Value::as_array_mut);
    for secret in items.into_iter().flatten().filter_map(Value::as_object_mut) {
        let data = secret.remove("data");
        let kept = ["name", "server", "project"].into_iter().filter_map(|key| {
            let value = data.as_ref()?.get(key)?;
            Some((key.to_owned(), value.clone()))
        });
        let mut kept: Map<String, Value> = kept.collect();
        kept.insert("config".to_owned(), Value::from(STANDARD.encode("{}")));
        let metadata = ["name", "labels", "annotations"].into_iter().filter_map(|key| {
            let value = secret.get("metadata")?.get(key)?;
            Some((key.to_owned(), value.clone()))
        });
        let mut metadata: Map<String, Value> = metadata.collect();
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
        *secret = json!({"metadata": metadata, "data": kept}).as_object().cloned().unwrap_or_default();
    }
    Bytes::from(list.to_string())
}

/// A cluster whose Secret was read, with its server or why it has none.
#[derive(Debug, Clone)]
pub(super) struct Cluster {
    /// Its URL, as Argo CD has it.
    pub url: String,
    /// What expressions can use.
    pub described: Arc<Value>,
    /// Its server.
    pub server: Result<ApiServer, BackendError>,
}
