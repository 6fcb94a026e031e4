//! One request to GitHub's API, with its headers and its credential.

use reqwest::Url;
use tokio::time::Instant;

use super::super::api::ForgeApi;
use crate::credential::{Credential, github_app::headers};
use domain::error::{BackendError, ErrorKind};
use outbound::{ANONYMOUS, Call, Reply};

/// The largest answer that is read, in bytes: a hundred runs with their repositories are about one mebibyte.
const MAX_REPLY_BYTES: usize = 8 * 1024 * 1024;

/// The API and its credential. Without a credential GitHub is called anonymously.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) api: ForgeApi,
    credential: Option<Credential>,
}

impl Access {
    pub(super) const fn new(api: ForgeApi, credential: Option<Credential>) -> Self {
        Self { api, credential }
    }

    /// Reads the 200 at `url`.
    pub(super) async fn get(&self, url: Url, deadline: Instant) -> Result<Reply, BackendError> {
        let call = Call { headers: headers(), revalidate: true, ..Call::get(url, MAX_REPLY_BYTES, deadline) };
        let shown = call.to_string();
        let client = self.api.client();
        let reply = match &self.credential {
            None => client.fetch(call).await?,
            Some(credential) => credential.send(client, call).await?,
        };
        check(reply).map_err(|error| error.within(shown))
    }

    /// Whether less than a tenth is left of GitHub's rate limit.
    pub(super) fn is_low(&self) -> bool {
        let account = match &self.credential {
            None => Some(ANONYMOUS.into()),
            Some(credential) => credential.account(),
        };
        account.is_some_and(|account| self.api.client().is_low(&self.api.base, &account))
    }
}

fn check(reply: Reply) -> Result<Reply, BackendError> {
    let advice = match reply.status.as_u16() {
        200 => return Ok(reply),
        301 | 302 | 307 | 308 => "was the repository renamed or moved? write its current name",
        // GitHub answers 404 for a private repository that the credential may not see.
        404 => {
            let message = format!(
                "404 Not Found: {}: it does not exist, or the credential may not see it; check the repository's name, and that \
                 the credential may read its actions, checks, statuses and contents",
                reply.excerpt(120)
            );
            return Err(BackendError::new(ErrorKind::Denied, message));
        }
        409 | 422 => "does the repository have this commit? it may not be pushed yet",
        _ => return Err(reply.refusal()),
    };
    let error = reply.refusal();
    Err(BackendError { message: format!("{}; {advice}", error.message), ..error })
}
