//! Lists: a repository's tags, a registry's repositories. All pages or none (invariant I3). Source: OCI distribution
//! specification 1.1, "Listing Tags", and the distribution project's catalogue.

use std::collections::HashSet;

use http::Method;
use indexmap::IndexSet;
use reqwest::Url;
use serde::{Deserialize, de::DeserializeOwned};
use tokio::time::Instant;
use url::form_urlencoded;

use super::{
    lookup::{Missing, missing},
    registries::Registries,
    registry::{Registry, RegistryRequest},
};
use crate::{
    clients::outbound::{Reply, link},
    domain::{document, error::BackendError},
};

/// How many names a page should have. Registries may give fewer: the last page is one without a `Link` that is not full.
const PAGE: usize = 250;
/// The most names in one list.
const MAX_NAMES: usize = 50_000;
/// The most pages of one list, which a registry may leave empty.
const MAX_PAGES: usize = 1000;

/// What a list holds, or that there is nothing to list.
pub(crate) type Listed = Result<Vec<String>, Missing>;

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
        let (mut names, mut seen) = (IndexSet::new(), HashSet::new());
        let (mut query, mut is_linked) = (Some(format!("n={PAGE}")), true);
        while let Some(asked) = query {
            let question = RegistryRequest { method: Method::GET, repository, path, query: Some(&asked) };
            let reply = self.ask(&question, deadline).await?;
            match reply.status.as_u16() {
                200 => {}
                404 if seen.is_empty() => return missing(&reply).map(Err),
                _ => return Err(reply.refusal()),
            }
            let page = read(&reply)?;
            if !is_linked && page.iter().any(|name| names.contains(name)) {
                check_repeated(&names, &page)?;
                break;
            }
            let linked = next(&reply, &self.url(&question)?)?;
            is_linked = linked.is_some();
            query = linked.or_else(|| after_full_page(&asked, &page));
            names.extend(page);
            if names.len() > MAX_NAMES || seen.len() == MAX_PAGES {
                let why = format!("it has more than {MAX_NAMES} names or {MAX_PAGES} pages");
                return Err(BackendError::invalid_output(why));
            }
            if !seen.insert(asked) {
                return Err(BackendError::invalid_output("its pages lead round in a circle"));
            }
        }
        Ok(Ok(names.into_iter().collect()))
    }
}

/// The query for what follows `page`, where that has exactly as many names as `asked` wanted: the registry may have left out
/// the `Link` to the next one. It wants one name more, which [`check_repeated`] relies on.
fn after_full_page(asked: &str, page: &[String]) -> Option<String> {
    let (_, wanted) = form_urlencoded::parse(asked.as_bytes()).find(|(name, _)| name == "n")?;
    let last = page.last().filter(|_| wanted.parse() == Ok(page.len()))?;
    let more = (page.len() + 1).to_string();
    Some(form_urlencoded::Serializer::new(String::new()).append_pair("n", &more).append_pair("last", last).finish())
}

/// Checks the answer of a registry that was asked for what follows `names` and repeats some of them: it knows no `last`. All
/// of them and no more, although one more was wanted, are the whole list; registries that know no `n` either answer so.
fn check_repeated(names: &IndexSet<String>, page: &[String]) -> Result<(), BackendError> {
    if names.iter().eq(page) {
        return Ok(());
    }
    let why = "its page is full and has no `Link`, and it does not say what follows, so the list may go on";
    Err(BackendError::invalid_output(why))
}

/// The list in `reply`. What names errors beside it is not known to be whole.
fn read<T: DeserializeOwned>(reply: &Reply) -> Result<T, BackendError> {
    let list = document::read(&reply.body).and_then(|list| match document::told_error(&list) {
        None => document::read_object(list.into()),
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
