//! Lists: the tags of a repository, and the repositories of a registry. All pages or none (invariant I3). Source: OCI
//! distribution specification 1.1, "Listing Tags", and the distribution project's catalogue.

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

/// The number of names to ask for per page. Registries may give fewer. The last page has no `Link` and is not full.
const PAGE: usize = 250;
/// The most names in one list.
const MAX_NAMES: usize = 50_000;
/// The most pages of one list. A registry may send empty ones.
const MAX_PAGES: usize = 1000;

/// The names in a list, or why there is no list.
pub(crate) type ListResult = Result<Vec<String>, Missing>;

#[derive(Deserialize)]
struct Tags {
    // An empty repository has `null` here; the key itself is required.
    #[serde(deserialize_with = "Option::deserialize")]
    tags: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Catalogue {
    repositories: Vec<String>,
}

impl Registries {
    /// All tags of `repository`, from the registry itself: a mirror only has what passed through it.
    ///
    /// # Errors
    /// When the whole list is not known by `deadline`.
    pub async fn tags(&self, registry: &str, repository: &str, deadline: Instant) -> Result<ListResult, BackendError> {
        let within = |error: BackendError| error.within(format_args!("registry {registry}: the tags of {repository}"));
        let origin = self.origin(registry).map_err(within)?;
        let read = |reply: &Reply| Ok(read::<Tags>(reply)?.tags.unwrap_or_default());
        origin.list(repository, "tags/list", read, deadline).await.map_err(within)
    }

    /// All repositories of `registry`.
    ///
    /// # Errors
    /// When the whole list is not known by `deadline`. Many registries do not list their repositories.
    pub async fn repositories(&self, registry: &str, deadline: Instant) -> Result<Vec<String>, BackendError> {
        let within = |error: BackendError| error.within(format_args!("registry {registry}: its catalogue"));
        let origin = self.origin(registry).map_err(within)?;
        let listed = origin.list("", "_catalog", |reply| Ok(read::<Catalogue>(reply)?.repositories), deadline).await;
        listed.map_err(within)?.map_err(|_| within(BackendError::invalid_output("it has none")))
    }

    /// The registry itself, not its mirrors.
    ///
    /// # Errors
    /// When its credential cannot be read.
    pub(super) fn origin(&self, registry: &str) -> Result<std::sync::Arc<Registry>, BackendError> {
        self.chain(registry)?.pop().ok_or_else(|| BackendError::unavailable("there is no registry to ask"))
    }
}

impl Registry {
    async fn list(
        &self,
        repository: &str,
        path: &str,
        read: impl Fn(&Reply) -> Result<Vec<String>, BackendError>,
        deadline: Instant,
    ) -> Result<ListResult, BackendError> {
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
                return Err(BackendError::invalid_output("its pages lead in a circle"));
            }
        }
        Ok(Ok(names.into_iter().collect()))
    }
}

/// The query for the page after `page`, if `page` is full: the registry may have left out the `Link`. Asks for one more name
/// than `asked`, since [`check_repeated`] relies on that.
fn after_full_page(asked: &str, page: &[String]) -> Option<String> {
    let (_, wanted) = form_urlencoded::parse(asked.as_bytes()).find(|(name, _)| name == "n")?;
    if wanted.parse() != Ok(page.len()) {
        return None;
    }
    let last = page.last()?;
    let more = (page.len() + 1).to_string();
    Some(form_urlencoded::Serializer::new(String::new()).append_pair("n", &more).append_pair("last", last).finish())
}

/// Checks an answer that repeats some of `names` when asked for what follows them: the registry does not know `last`. If it
/// repeats exactly all of them although one more name was asked for, they are the whole list. Registries that do not know `n`
/// answer so, too.
fn check_repeated(names: &IndexSet<String>, page: &[String]) -> Result<(), BackendError> {
    if names.iter().eq(page) {
        return Ok(());
    }
    let why = "its page is full and has no `Link`, and it does not say what follows, so the list may go on";
    Err(BackendError::invalid_output(why))
}

/// The list in `reply`. A list with errors beside it may be incomplete, and is refused.
fn read<T: DeserializeOwned>(reply: &Reply) -> Result<T, BackendError> {
    let list = document::read(&reply.body).and_then(|list| match document::reported_error(&list) {
        None => document::read_object(list.into()),
        Some(_) => Err("it names errors".to_owned()),
    });
    list.map_err(|error| BackendError::invalid_output(format!("it answered no list: {error}: {}", reply.excerpt(120))))
}

/// The query of the next page. Only the query of a `Link` (RFC 8288) is followed, and it must belong to the same list.
pub(super) fn next(reply: &Reply, here: &Url) -> Result<Option<String>, BackendError> {
    let wrong = |link: &str| {
        // The query may hold a secret.
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
