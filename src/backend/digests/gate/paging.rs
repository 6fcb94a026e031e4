//! Lists in pages: all pages or none (invariant I3).

use reqwest::Url;

use crate::{
    clients::outbound::Reply,
    domain::{error::BackendError, secret::Secrets},
};

/// How many pages are followed. A list that goes on is not known whole.
const MAX_PAGES: usize = 20;

/// A part of a list.
#[derive(Debug)]
pub(crate) struct ListPage<T> {
    /// What stands in it.
    pub(crate) items: Vec<T>,
    /// Where the next part is, if there is one.
    pub(crate) next: Option<Url>,
}

/// The list that begins at `first`, all of it, as `get` asks for its pages and `read` makes items of each; and what must
/// not be told of it.
///
/// # Errors
/// When a page is missing, or the list does not end.
pub(crate) async fn list<T, GateQuery>(
    first: Url,
    get: impl Fn(Url) -> GateQuery,
    mut read: impl FnMut(&Reply, &Url) -> Result<ListPage<T>, BackendError>,
) -> Result<(Vec<T>, Secrets), BackendError>
where
    GateQuery: Future<Output = Result<Reply, BackendError>>,
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
