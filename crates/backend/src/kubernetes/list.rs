//! A list of an API server, read whole: all pages of one version, or none. Source: Kubernetes, "API concepts", "Retrieving large results sets in
//! chunks".

use serde_json::Value;
use tokio::time::Instant;

use domain::{
    document::{self, kind_of},
    error::BackendError,
};
use outbound::{
    Reply,
    kubernetes::{ApiCall, ApiServer},
};
use source::{Load, work_on};

/// How many objects one page has.
const PAGE: &str = "250";
/// The largest page, in bytes.
const MAX_PAGE_BYTES: usize = 32 * 1024 * 1024;
/// How often a list is begun again because its continuation expired (410), or its pages are of different versions.
const MAX_ATTEMPTS: usize = 3;
/// The most pages. A server may send pages without objects, and no more than this.
const MAX_PAGES: usize = 2000;

/// What is listed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listing<'a> {
    /// The path of the list.
    pub path: &'a [&'a str],
    /// The query, without that of pages.
    pub query: &'a [(&'a str, &'a str)],
    /// The group and version of the objects, and their kind.
    pub of: (&'a str, &'a str),
    /// The right that the account needs, for a 403.
    pub right: &'a str,
    /// The most objects.
    pub max: usize,
    /// What `record` writes in place of pages.
    pub recorded_as: Option<fn(&[u8]) -> bytes::Bytes>,
    /// When the whole list must be there.
    pub deadline: Instant,
}

/// A whole list.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// The objects.
    pub items: Vec<Value>,
    /// The request, for evidence.
    pub request: String,
    /// How many pages there were.
    pub pages: usize,
}

/// One page.
struct Page {
    items: Vec<Value>,
    version: String,
    next: Option<String>,
}

/// Why an attempt ended.
enum Ended {
    /// It may succeed from the beginning.
    Expired(&'static str),
    Failed(BackendError),
}

impl From<BackendError> for Ended {
    fn from(error: BackendError) -> Self {
        Self::Failed(error)
    }
}

impl Listing<'_> {
    /// All objects at `server`.
    ///
    /// # Errors
    /// When a page cannot be read, or the pages are not one list. A 404 too: it does not say that there are no objects.
    pub(super) async fn read(&self, server: &ApiServer) -> Result<Listed, BackendError> {
        let mut why = "";
        for _ in 0..MAX_ATTEMPTS {
            match self.attempt(server).await {
                Ok(listed) => return Ok(listed),
                Err(Ended::Failed(error)) => return Err(error),
                Err(Ended::Expired(reason)) => why = reason,
            }
        }
        let path = self.path.join("/");
        Err(BackendError::unavailable(format!(
            "{MAX_ATTEMPTS} times {why} while the list /{path} was read; the next call begins again"
        )))
    }

    async fn attempt(&self, server: &ApiServer) -> Result<Listed, Ended> {
        let (mut listed, mut version, mut next) = (Listed::default(), None, None::<String>);
        loop {
            let mut query = self.query.to_vec();
            query.push(("limit", PAGE));
            query.extend(next.as_deref().map(|next| ("continue", next)));
            let call = ApiCall {
                recorded_as: self.recorded_as,
                ..ApiCall::get(self.path, &query, MAX_PAGE_BYTES, self.deadline)
            };
            let (shown, reply) = server.send(call).await;
            let reply = reply?;
            if reply.status.as_u16() == 410 && next.is_some() {
                return Err(Ended::Expired("the continuation expired (410)"));
            }
            let page = self.page(reply).await.map_err(|error| error.within(&shown))?;
            listed.pages += 1;
            if version.get_or_insert_with(|| page.version.clone()) != &page.version {
                return Err(Ended::Expired("its pages were of different versions"));
            }
            listed.items.extend(page.items);
            listed.request = shown;
            if listed.items.len() > self.max {
                let message = format!("there are more than {} objects (`maxObjects`)", self.max);
                return Err(BackendError::invalid_output(message).within(&listed.request).into());
            }
            let is_stuck = page.next.is_some() && (page.next == next || listed.pages >= MAX_PAGES);
            if is_stuck {
                let message = "its pages do not end: the server names the same continuation again and again";
                return Err(BackendError::invalid_output(message).within(&listed.request).into());
            }
            match page.next {
                None => return Ok(listed),
                found => next = found,
            }
        }
    }

    async fn page(&self, reply: Reply) -> Result<Page, BackendError> {
        if reply.status.as_u16() != 200 {
            return Err(refusal(&reply, self.right));
        }
        reply.check_whole()?;
        reply.check_json()?;
        let of = (self.of.0.to_owned(), self.of.1.to_owned());
        let is_secret = self.recorded_as.is_some();
        let load = Load::Bytes(reply.body.len());
        work_on(load, move || read(&reply, (&of.0, &of.1), is_secret)).await
    }
}

/// The error for a status other than 200.
pub(super) fn refusal(reply: &Reply, right: &str) -> BackendError {
    let error = reply.refusal();
    let advice = match reply.status.as_u16() {
        403 if !reply.is_limit() => format!("; the account needs the right to {right}"),
        404 => "; the cluster does not serve this: a missing CustomResourceDefinition is not a proof that there are no objects".to_owned(),
        _ => String::new(),
    };
    BackendError { message: format!("{}{advice}", error.message), ..error }
}

/// The page in `reply`. With `is_secret`, no error quotes it.
fn read(reply: &Reply, (api_version, kind): (&str, &str), is_secret: bool) -> Result<Page, BackendError> {
    let invalid = |why: String| Err(BackendError::invalid_output(why));
    let mut body = match document::parse(&reply.body) {
        Ok(body) => body,
        Err(_) if is_secret => return invalid("not one JSON document".to_owned()),
        Err(error) => {
            return invalid(format!("not one JSON document: {error} (it begins with `{}`)", reply.excerpt(120)));
        }
    };
    let text = |key: &str| body.pointer(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (found, expected) = ((text("/apiVersion"), text("/kind")), format!("{kind}List"));
    if found != (api_version.to_owned(), expected.clone()) {
        let found = if is_secret {
            "something else".to_owned()
        } else {
            format!("`{}` of `{}`", found.1.escape_debug(), found.0.escape_debug())
        };
        return invalid(format!("it is {found}, and `{expected}` of `{api_version}` is expected"));
    }
    let (version, next) = (text("/metadata/resourceVersion"), text("/metadata/continue"));
    let next = Some(next).filter(|next| !next.is_empty());
    let remaining = body.pointer("/metadata/remainingItemCount").and_then(Value::as_u64).unwrap_or_default();
    if next.is_none() && remaining > 0 {
        return invalid(format!("{remaining} more objects remain, and no `continue` leads to them"));
    }
    match body.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) if items.iter().all(Value::is_object) => Ok(Page { items, version, next }),
        Some(Value::Array(_)) => invalid("an item is not an object".to_owned()),
        Some(other) => invalid(format!("its `items` is {}, not a list", kind_of(&other))),
        None => invalid("it has no `items`".to_owned()),
    }
}
