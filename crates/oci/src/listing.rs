//! Lists: the tags of a repository, and the repositories of a registry. All pages or none (invariant I3). Source: OCI
//! distribution specification 1.1, "Listing Tags", and the distribution project's catalogue.

use std::{collections::HashSet, fmt::Display};

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
use domain::{document, error::BackendError};
use outbound::{Reply, link};

/// The number of names to request per page. Registries may return fewer. The last page has no `Link` and is not full.
const PAGE: usize = 250;
/// The most names in one list.
const MAX_NAMES: usize = 50_000;
/// The most pages of one list. A registry may send empty ones.
const MAX_PAGES: usize = 1000;

/// The names in a list, or why there is no list.
pub type ListResult = Result<Vec<String>, Missing>;

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
    /// All tags of `repository`, from the registry itself: a mirror has only the images that passed through it.
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
        let read = |reply: &Reply| Ok(read::<Catalogue>(reply)?.repositories);
        let listed = origin.list("", RegistryRequest::CATALOGUE, read, deadline).await;
        listed.map_err(within)?.map_err(|_| within(BackendError::invalid_output("it has none")))
    }

    /// The registry itself, not its mirrors.
    ///
    /// # Errors
    /// When its credential cannot be read.
    pub(super) fn origin(&self, registry: &str) -> Result<std::sync::Arc<Registry>, BackendError> {
        self.chain(registry)?.pop().ok_or_else(|| BackendError::unavailable("there is no registry for it"))
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
        let query = format!("n={PAGE}");
        let request = RegistryRequest { method: Method::GET, repository, path, query: Some(&query), url: None };
        let (mut next, mut is_linked) = (Some(PageAt::new(self.url(&request)?)), true);
        while let Some(current) = next {
            let (reply, at) = self.page(&current, &request, deadline).await?;
            match reply.status.as_u16() {
                200 => {}
                404 if seen.is_empty() => return missing(&reply).map(Err),
                _ => return Err(reply.refusal()),
            }
            let page = read(&reply)?;
            // The URL of this page was guessed. A registry that ignores `last` begins again at the first name.
            if !is_linked && page.iter().any(|name| names.contains(name)) {
                check_repeated(&names, &page)?;
                break;
            }
            let linked = next_page(&reply, &at, &request)?;
            is_linked = linked.is_some();
            next = linked.or_else(|| after_full_page(&at, &page).map(PageAt::new));
            names.extend(page);
            if names.len() > MAX_NAMES || seen.len() == MAX_PAGES {
                let why = format!("it has more than {MAX_NAMES} names or {MAX_PAGES} pages");
                return Err(BackendError::invalid_output(why));
            }
            // Checked last, since a page that repeats itself may still complete the list above.
            if !seen.insert(current.url) {
                return Err(BackendError::invalid_output("its pages lead in a circle"));
            }
        }
        Ok(Ok(names.into_iter().collect()))
    }

    /// One page of a list, and the URL that answered.
    ///
    /// # Errors
    /// When no whole answer arrives by `deadline`.
    pub(super) async fn page(
        &self,
        page: &PageAt,
        request: &RegistryRequest<'_>,
        deadline: Instant,
    ) -> Result<(Reply, Url), BackendError> {
        let (reply, at) = self.fetch_at(page.url.clone(), request, deadline).await?;
        match &page.own {
            Some(own) if reply.status.as_u16() == 404 => self.fetch_at(own.clone(), request, deadline).await,
            _ => Ok((reply, at)),
        }
    }
}

/// Where a page of a list is.
#[derive(Debug, Clone)]
pub(super) struct PageAt {
    /// Its URL.
    pub(super) url: Url,
    /// The URL with the path of the page before, if the registry named another path: it may be a path of the server behind a proxy.
    own: Option<Url>,
}

impl PageAt {
    /// The page at `url`.
    pub(super) const fn new(url: Url) -> Self {
        Self { url, own: None }
    }
}

/// The URL of the page after `page`, if `page` is full: the registry may have left out the `Link`. Requests one more name
/// than `full`, since [`check_repeated`] relies on that.
fn after_full_page(full: &Url, page: &[String]) -> Option<Url> {
    let (_, wanted) = form_urlencoded::parse(full.query()?.as_bytes()).find(|(name, _)| name == "n")?;
    if wanted.parse() != Ok(page.len()) {
        return None;
    }
    let last = page.last()?;
    let more = (page.len() + 1).to_string();
    let mut url = full.clone();
    url.query_pairs_mut().clear().append_pair("n", &more).append_pair("last", last);
    Some(url)
}

/// Checks a page that repeats some of `names`, though the request was for the names after them: the registry ignores `last`. If the
/// page repeats exactly all of them although the request was for one more name, they are the whole list. Registries that ignore `n`
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
    let no_list =
        |why: &dyn Display| BackendError::invalid_output(format!("it answered no list: {why}: {}", reply.excerpt(120)));
    let list = document::read(&reply.body).map_err(|error| no_list(&error))?;
    match document::reported_error(&list) {
        None => document::read_object(list.into()).map_err(|error| no_list(&error)),
        Some(_) => Err(no_list(&"it names errors")),
    }
}

/// The next page by `Link` (RFC 8288). Its host must be that of `here`. Scheme and port do not count: a registry behind a proxy
/// often writes its own. Its path must be that of the same list, which may be nested elsewhere.
pub(super) fn next_page(
    reply: &Reply,
    here: &Url,
    request: &RegistryRequest<'_>,
) -> Result<Option<PageAt>, BackendError> {
    let wrong = |link: &str| {
        // The query may hold a secret.
        let shown: String = link.split('?').next().unwrap_or_default().chars().take(120).collect();
        BackendError::invalid_output(format!("its next page `{}` is not of this list", shown.escape_debug()))
    };
    let Some(target) = link::next(&reply.headers).map_err(|link| wrong(&link))? else { return Ok(None) };
    let target = here.join(&target).map_err(|_| wrong(&target))?;
    let host = |url: &Url| url.host_str().map(|host| host.trim_end_matches('.').to_owned());
    if host(&target) != host(here) || target.query().is_none() || !matches!(target.scheme(), "http" | "https") {
        return Err(wrong(target.as_str()));
    }
    let mut own = here.clone();
    own.set_query(target.query());
    // A proxy may have put something in front of the path.
    let is_cut = target.path().strip_prefix("/v2").is_some_and(|list| here.path().ends_with(list));
    if is_cut || target.path() == here.path() {
        return Ok(Some(PageAt::new(own)));
    }
    let name = request.repository.rsplit('/').next().unwrap_or_default();
    let list = if name.is_empty() { format!("/{}", request.path) } else { format!("/{name}/{}", request.path) };
    if !target.path().ends_with(&list) {
        return Err(wrong(target.as_str()));
    }
    let mut url = own.clone();
    url.set_path(target.path());
    Ok(Some(PageAt { url, own: Some(own) }))
}
