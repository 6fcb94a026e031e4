//! Which documents a registry lists for a digest: all pages of the referrers API, or the index under the fallback tag.

use std::{collections::HashSet, time::Duration};

use http::Method;
use indexmap::IndexMap;
use serde::Deserialize;
use tokio::time::Instant;

use super::super::{
    Digest,
    listing::{PageAt, next_page},
    lookup::{content_type, missing, verified_manifest},
    manifest::INDEX,
    registry::{Registry, RegistryRequest},
};
use domain::{document, error::BackendError};
use outbound::Reply;

/// The most documents in one list. More are not read.
const MAX_LISTED: usize = 10_000;
/// The most pages of one list.
const MAX_PAGES: usize = 100;
/// For how long it is remembered that a registry has no referrers API.
const LACKS_FOR: Duration = Duration::from_mins(10);

/// The most bytes of all pages of one list.
const MAX_LIST_BYTES: usize = 16 * 1024 * 1024;
/// The place in words if there is no list at all.
const NEITHER: &str = "the registry has no referrers API, and no fallback tag for it";

/// The documents that are listed for one digest.
#[derive(Debug, Default)]
pub(super) struct List {
    /// Their digests. Those that call themselves signatures come first; the others are not left out, since a list may name wrong types.
    pub(super) digests: Vec<Digest>,
    /// Why there may be more.
    pub(super) gap: Option<BackendError>,
    /// Where the list is from, in words.
    pub(super) place: &'static str,
    /// Whether the API was not called, since it is remembered that there is none.
    pub(super) relies_on_memory: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    schema_version: u32,
    manifests: Vec<Listed>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    digest: String,
    #[serde(default)]
    artifact_type: Option<String>,
}

/// The answer of the referrers API.
enum Api {
    /// The whole list, or its begin and a gap.
    List(List),
    /// A 404: the registry has no such API. The specification demands an empty list for an image without documents.
    Lacking,
}

impl Registry {
    /// The documents that are listed for `digest`. If it is remembered that there is no API, only the fallback tag is read. That proves
    /// no absence: the registry may have the API since, or the 404 came from another server. [`Self::list_by_api`] finds out.
    ///
    /// # Errors
    /// When nothing is known of the list. An empty list is proven: by the API, or by the API's 404 and the words of a registry that the
    /// fallback tag is missing.
    pub(super) async fn list_referrers(
        &self,
        repository: &str,
        digest: &Digest,
        deadline: Instant,
    ) -> Result<List, BackendError> {
        let relies_on_memory = self.referrers_api.is_lacking();
        if !relies_on_memory && let Api::List(list) = self.call_api(repository, digest, deadline).await? {
            return Ok(list);
        }
        let list =
            self.fallback(repository, digest, deadline).await?.unwrap_or(List { place: NEITHER, ..List::default() });
        Ok(List { relies_on_memory, ..list })
    }

    /// The documents that the API lists for `digest`, even if it is remembered that there is none. None if there is no API.
    ///
    /// # Errors
    /// When nothing is known of the list.
    pub(super) async fn list_by_api(
        &self,
        repository: &str,
        digest: &Digest,
        deadline: Instant,
    ) -> Result<List, BackendError> {
        match self.call_api(repository, digest, deadline).await? {
            Api::List(list) => {
                self.referrers_api.forget();
                Ok(list)
            }
            Api::Lacking => Ok(List { place: "the referrers API, which is still missing", ..List::default() }),
        }
    }

    /// Reads all pages of the referrers API. Without a filter: the documents themselves show their types.
    async fn call_api(&self, repository: &str, digest: &Digest, deadline: Instant) -> Result<Api, BackendError> {
        let within = |error: BackendError| error.within(format_args!("the referrers of {digest}"));
        let path = format!("referrers/{digest}");
        let (mut digests, mut seen, mut bytes) = (Digests::default(), HashSet::new(), 0);
        let request = RegistryRequest { method: Method::GET, repository, path: &path, query: None, url: None };
        let mut next = PageAt::new(self.url(&request)?);
        let gap = loop {
            let page = match self.page(&next, &request, deadline).await {
                Ok((reply, _)) if reply.status.as_u16() == 404 && seen.is_empty() => {
                    // A registry that has no such repository may still have the API.
                    if missing(&reply).is_err() {
                        self.referrers_api.lacks_for(LACKS_FOR);
                    }
                    return Ok(Api::Lacking);
                }
                Ok((reply, at)) => {
                    bytes += reply.body.len();
                    digests.add(&reply).and_then(|()| next_page(&reply, &at, &request))
                }
                Err(error) => Err(error),
            };
            match page {
                // Without the first page, nothing is known.
                Err(error) if seen.is_empty() => return Err(within(error)),
                Err(error) => break Some(within(error)),
                Ok(None) => break None,
                Ok(Some(link)) => {
                    seen.insert(next.url);
                    let is_long = digests.all.len() > MAX_LISTED || seen.len() > MAX_PAGES || bytes > MAX_LIST_BYTES;
                    if is_long || seen.contains(&link.url) {
                        let why = format!(
                            "its list has more than {MAX_LISTED} documents, {MAX_PAGES} pages or {MAX_LIST_BYTES} bytes, or its pages lead in \
                             a circle"
                        );
                        break Some(within(BackendError::invalid_output(why)));
                    }
                    next = link;
                }
            }
        };
        Ok(Api::List(digests.into_list("the referrers API", gap)))
    }

    /// The index under the fallback tag; `None` if the registry has none.
    async fn fallback(
        &self,
        repository: &str,
        digest: &Digest,
        deadline: Instant,
    ) -> Result<Option<List>, BackendError> {
        let tag = format!("sha256-{}", digest.hex());
        let within = |error: BackendError| error.within(format_args!("the tag {tag}"));
        let Some(reply) = self.tagged(repository, &tag, deadline).await.map_err(within)? else { return Ok(None) };
        let mut digests = Digests::default();
        digests.add(&reply).map_err(within)?;
        let gap = (digests.all.len() > MAX_LISTED)
            .then(|| within(BackendError::invalid_output(format!("it lists more than {MAX_LISTED} documents"))));
        Ok(Some(digests.into_list("the fallback tag of the referrers API", gap)))
    }

    /// The manifest under `tag`, checked; `None` if the registry has none. A 403 is not a proof here:
    /// `deniedMeansMissing` is only about images.
    pub(super) async fn tagged(
        &self,
        repository: &str,
        tag: &str,
        deadline: Instant,
    ) -> Result<Option<Reply>, BackendError> {
        let path = format!("manifests/{tag}");
        let request = RegistryRequest { method: Method::GET, repository, path: &path, query: None, url: None };
        let reply = self.fetch(&request, deadline).await?;
        match reply.status.as_u16() {
            200 => {
                verified_manifest(&reply)?;
                Ok(Some(reply))
            }
            404 => missing(&reply).map(|_| None),
            _ => Err(reply.refusal()),
        }
    }
}

/// The digests of a list, each once, with whether it calls itself a signature.
#[derive(Debug, Default)]
struct Digests {
    all: IndexMap<Digest, bool>,
    /// A document whose digest cannot be read.
    strange: Option<String>,
}

impl Digests {
    /// Adds one page.
    ///
    /// # Errors
    /// When `reply` is not a whole index.
    fn add(&mut self, reply: &Reply) -> Result<(), BackendError> {
        if reply.status.as_u16() != 200 {
            return Err(reply.refusal());
        }
        reply.check_whole()?;
        let wrong = |why: String| BackendError::invalid_output(format!("it answered no list of documents: {why}"));
        let media_type = content_type(reply);
        if !media_type.eq_ignore_ascii_case(INDEX) {
            let shown: String = media_type.chars().take(80).collect();
            return Err(wrong(format!("the content type is `{}`, not `{INDEX}`", shown.escape_debug())));
        }
        let index: Index = document::parse_object(&reply.body).map_err(|error| wrong(error.to_string()))?;
        if index.schema_version != 2 {
            return Err(wrong(format!("an index of version {}, not 2", index.schema_version)));
        }
        for Listed { digest, artifact_type } in index.manifests {
            let is_signature = artifact_type.is_some_and(|name| name.contains("sigstore") || name.contains("cosign"));
            match Digest::parse(&digest) {
                Ok(digest) => *self.all.entry(digest).or_default() |= is_signature,
                Err(why) => self.strange = Some(why),
            }
        }
        Ok(())
    }

    fn into_list(self, place: &'static str, gap: Option<BackendError>) -> List {
        let strange = self.strange.map(|why| BackendError::invalid_output(format!("a referrer of the image: {why}")));
        let (first, then): (Vec<_>, Vec<_>) = self.all.into_iter().partition(|(_, is_signature)| *is_signature);
        let digests = first.into_iter().chain(then).map(|(digest, _)| digest).collect();
        List { digests, gap: gap.or(strange), place, relies_on_memory: false }
    }
}
