//! Lists in pages: all pages or none (invariant I3).

use reqwest::Url;

use domain::{error::BackendError, secret::Secrets};
use outbound::Reply;

/// How many pages are read. A longer list is an error, since a part of it would be known only.
const MAX_PAGES: usize = 20;

/// One page of a list.
#[derive(Debug)]
pub struct ListPage<T> {
    /// Its items.
    pub items: Vec<T>,
    /// The next page, if there is one.
    pub next: Option<Url>,
}

/// All items of the list that begins at `first`, and the secrets that messages about it must not show. `get` fetches a
/// page, `read` makes items of it.
///
/// # Errors
/// When a page is missing, or the list does not end.
pub async fn list<T, PageFuture>(
    first: Url,
    get: impl Fn(Url) -> PageFuture,
    mut read: impl FnMut(&Reply, &Url) -> Result<ListPage<T>, BackendError>,
) -> Result<(Vec<T>, Secrets), BackendError>
where
    PageFuture: Future<Output = Result<Reply, BackendError>>,
{
    let (mut items, mut seen, mut secrets) = (Vec::new(), Vec::new(), Secrets::default());
    let mut next = Some(first);
    while let Some(url) = next {
        let fail = |error: BackendError| error.within(format_args!("GET {}", url.path()));
        if seen.contains(&url) {
            let why = "its pages lead in a circle, so the list is not known whole";
            return Err(fail(BackendError::invalid_output(why)));
        }
        if seen.len() == MAX_PAGES {
            let why =
                format!("the list goes on after {MAX_PAGES} pages; one of more than {MAX_PAGES} pages is not read");
            return Err(fail(BackendError::invalid_output(why)));
        }
        let reply = get(url.clone()).await?;
        let page = read(&reply, &url).map_err(|error| fail(reply.secrets.clean(&error)))?;
        items.extend(page.items);
        next = page.next;
        secrets = reply.secrets;
        seen.push(url);
    }
    Ok((items, secrets))
}
