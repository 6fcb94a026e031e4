//! The plural names of kinds, as the API server knows them.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::Instant;

use super::{list::refusal, selection::ObjectType};
use domain::{document, error::BackendError};
use outbound::kubernetes::{ApiCall, ApiServer};

/// For how long a name is used. It hardly ever changes; a 404 ends it.
const KEPT_FOR: Duration = Duration::from_mins(10);
/// The most servers whose names are kept.
const MAX_SERVERS: usize = 10_000;
/// The largest answer, in bytes.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// The names of one kind, by the URLs of their servers.
#[derive(Debug, Default)]
pub(super) struct Discovery(Mutex<HashMap<String, (Instant, Resource)>>);

/// A kind in URLs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resource {
    /// The plural name.
    pub name: String,
    /// Whether its objects are in namespaces. `None` if the configuration has the name, so that nobody asked.
    pub is_namespaced: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resources {
    group_version: String,
    resources: Vec<Described>,
}

#[derive(Deserialize)]
struct Described {
    name: String,
    kind: String,
    namespaced: bool,
    #[serde(default)]
    verbs: Vec<String>,
}

impl Discovery {
    /// The resource of the objects `of` at `server`.
    ///
    /// # Errors
    /// When the server does not serve them, or does not say.
    pub(super) async fn find(
        &self,
        server: &ApiServer,
        of: &ObjectType,
        deadline: Instant,
    ) -> Result<Resource, BackendError> {
        if let Some(name) = &of.resource {
            return Ok(Resource { name: name.clone(), is_namespaced: None });
        }
        let key = server.url().to_string();
        if let Some((read_at, resource)) = self.0.lock().get(&key)
            && read_at.elapsed() < KEPT_FOR
        {
            return Ok(resource.clone());
        }
        let resource = ask(server, of, deadline).await?;
        let mut kept = self.0.lock();
        if kept.len() >= MAX_SERVERS {
            kept.clear();
        }
        kept.insert(key, (Instant::now(), resource.clone()));
        Ok(resource)
    }

    /// Forgets the name at `server`, because it led nowhere.
    pub(super) fn forget(&self, server: &ApiServer) {
        self.0.lock().remove(server.url().as_str());
    }

    /// Forgets all names.
    pub(super) fn forget_all(&self) {
        self.0.lock().clear();
    }
}

/// The resource of the objects `of` at `server`, by its list of resources.
///
/// # Errors
/// When the server does not serve them, or does not say.
pub(super) async fn ask(server: &ApiServer, of: &ObjectType, deadline: Instant) -> Result<Resource, BackendError> {
    let path = of.path();
    let (shown, reply) = server.send(ApiCall::get(&path, &[], MAX_BYTES, deadline)).await;
    let reply = reply?;
    let found = || -> Result<Resource, BackendError> {
        if reply.status.as_u16() != 200 {
            return Err(refusal(&reply, "read the list of resources (ClusterRole `system:discovery`)"));
        }
        reply.check_whole()?;
        reply.check_json()?;
        let read: Resources = document::parse_object(&reply.body).map_err(|error| {
            BackendError::invalid_output(format!(
                "it is not a list of resources: {error} (it begins with `{}`)",
                reply.excerpt(120)
            ))
        })?;
        pick(&read, of)
    };
    found().map_err(|error| error.within(shown))
}

fn pick(read: &Resources, of: &ObjectType) -> Result<Resource, BackendError> {
    let invalid = |why: String| Err(BackendError::invalid_output(why));
    if read.group_version != of.api_version {
        return invalid(format!("it is about `{}`", read.group_version.escape_debug()));
    }
    // `pods/log` is a part of an object.
    let is_meant = |each: &&Described| each.kind == of.kind && !each.name.contains('/');
    let found: Vec<&Described> = read.resources.iter().filter(is_meant).collect();
    match found[..] {
        [] => invalid(format!(
            "the cluster serves no kind `{}` of `{}`: a missing CustomResourceDefinition is not a proof that there are no objects",
            of.kind, of.api_version
        )),
        [one] if one.verbs.iter().any(|verb| verb == "list") => {
            Ok(Resource { name: one.name.clone(), is_namespaced: Some(one.namespaced) })
        }
        [_] => invalid(format!("objects of the kind `{}` cannot be listed", of.kind)),
        _ => {
            let names: Vec<&str> = found.iter().map(|each| each.name.as_str()).collect();
            invalid(format!(
                "several resources have the kind `{}`; set `resource` to one of {}",
                of.kind,
                names.join(", ")
            ))
        }
    }
}
