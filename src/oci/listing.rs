//! Lists: a repository's tags, a registry's repositories. All pages or none (invariant I3). Source: OCI distribution
//! specification 1.1, "Listing Tags", and the distribution project's catalogue.

use std::collections::HashSet;

use http::Method;
use reqwest::Url;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    lookup::{Missing, missing},
    registries::Registries,
    registry::{Question, Registry},
};
use crate::{
    document,
    error::BackendError,
    outbound::{Reply, link},
};

/// How many names a page should have. Registries may give fewer: only a missing `Link` says that it is the last.
const PAGE: usize = 250;
/// The most names in one list.
const MOST: usize = 50_000;
/// The most pages of one list, which a registry may leave empty.
const MOST_PAGES: usize = 1000;

/// What a list holds, or that there is nothing to list.
pub type Listed = Result<Vec<String>, Missing>;

#[derive(Deserialize)]
struct Tags {
    // An empty repository has `null`, where the field is there all the same.
    #[serde(deserialize_with = "Option::deserialize")]
    tags: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Catalogue {
    repositories: Vec<String>,
}

impl Registries {
    /// All tags of `repository` on `registry`, from the registry itself: a mirror has only what passed through it.
    ///
    /// # Errors
    /// When they are not known whole by `deadline`.
    pub async fn tags(&self, registry: &str, repository: &str, deadline: Instant) -> Result<Listed, BackendError> {
        let within = |error: BackendError| error.within(format_args!("registry {registry}: the tags of {repository}"));
        let origin = self.origin(registry).map_err(within)?;
        let read = |reply: &Reply| Ok(read::<Tags>(reply)?.tags.unwrap_or_default());
        origin.list(repository, "tags/list", read, deadline).await.map_err(within)
    }

    /// All repositories of `registry`.
    ///
    /// # Errors
    /// When they are not known whole by `deadline`. Many registries do not tell them.
    pub async fn repositories(&self, registry: &str, deadline: Instant) -> Result<Vec<String>, BackendError> {
        let within = |error: BackendError| error.within(format_args!("registry {registry}: its catalogue"));
        let origin = self.origin(registry).map_err(within)?;
        let listed = origin.list("", "_catalog", |reply| Ok(read::<Catalogue>(reply)?.repositories), deadline).await;
        listed.map_err(within)?.map_err(|_| within(BackendError::invalid_output("it has none")))
    }

    fn origin(&self, registry: &str) -> Result<std::sync::Arc<Registry>, BackendError> {
        self.chain(registry)?.pop().ok_or_else(|| BackendError::unavailable("there is nobody to ask"))
    }
}

impl Registry {
    async fn list(
        &self,
        repository: &str,
        path: &str,
        read: impl Fn(&Reply) -> Result<Vec<String>, BackendError>,
        deadline: Instant,
    ) -> Result<Listed, BackendError> {
        let (mut names, mut seen) = (Vec::new(), HashSet::new());
        let mut query = Some(format!("n={PAGE}"));
        while let Some(asked) = query {
            let question = Question { method: Method::GET, repository, path, query: Some(&asked) };
            let reply = self.ask(&question, deadline).await?;
            match reply.status.as_u16() {
                200 => {}
                404 if seen.is_empty() => return missing(&reply).map(Err),
                _ => return Err(reply.refusal()),
            }
            names.extend(read(&reply)?);
            if names.len() > MOST || seen.len() == MOST_PAGES {
                let why = format!("it has more than {MOST} names or {MOST_PAGES} pages");
                return Err(BackendError::invalid_output(why));
            }
            query = next(&reply, &self.url(&question)?)?;
            if !seen.insert(asked) {
                return Err(BackendError::invalid_output("its pages lead round in a circle"));
            }
        }
        let mut once = HashSet::new();
        names.retain(|name| once.insert(name.clone()));
        Ok(Ok(names))
    }
}

/// The list in `reply`. What names errors beside it is not known to be whole.
fn read<T: DeserializeOwned>(reply: &Reply) -> Result<T, BackendError> {
    let list = document::parse(&reply.body).and_then(|list| match list.get("errors") {
        None | Some(Value::Null) => document::read_object(list),
        Some(Value::Array(none)) if none.is_empty() => document::read_object(list),
        Some(_) => Err("it names errors".to_owned()),
    });
    list.map_err(|error| BackendError::invalid_output(format!("it answered no list: {error}: {}", reply.excerpt(120))))
}

/// The query of the next page, which must be one of the same list: only the query of a `Link` (RFC 8288) is followed.
fn next(reply: &Reply, here: &Url) -> Result<Option<String>, BackendError> {
    let wrong = |link: &str| {
        // What follows the path may hold a secret.
        let shown: String = link.split('?').next().unwrap_or_default().chars().take(120).collect();
        BackendError::invalid_output(format!("its next page `{}` is not of this list", shown.escape_debug()))
    };
    let Some(target) = link::next(&reply.headers).map_err(|link| wrong(&link))? else { return Ok(None) };
    let target = here.join(&target).map_err(|_| wrong(&target))?;
    if target.origin() != here.origin() || target.path() != here.path() || target.query().is_none() {
        return Err(wrong(target.as_str()));
    }
    Ok(target.query().map(str::to_owned))
}
