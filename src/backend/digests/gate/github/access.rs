//! One question to GitHub's API, with its headers and its credential.

use reqwest::Url;
use tokio::time::Instant;

use super::super::api::Api;
use crate::{
    backend::credential::{Credential, github_app::headers},
    clients::outbound::{ANONYMOUS, Call, Reply},
    domain::error::{BackendError, ErrorKind},
};

/// The largest answer that is read, in bytes: a hundred runs with their repositories are about one mebibyte.
const MAX_REPLY_BYTES: usize = 8 * 1024 * 1024;

/// The API, and who asks it: anybody, without a credential.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) api: Api,
    credential: Option<Credential>,
}

impl Access {
    pub(super) const fn new(api: Api, credential: Option<Credential>) -> Self {
        Self { api, credential }
    }

    /// Reads the 200 at `url`.
    pub(super) async fn get(&self, url: Url, deadline: Instant) -> Result<Reply, BackendError> {
        let call = Call { headers: headers(), revalidate: true, ..Call::get(url, MAX_REPLY_BYTES, deadline) };
        let shown = call.to_string();
        let line = self.api.line();
        let reply = match &self.credential {
            None => line.fetch(call).await?,
            Some(credential) => credential.send(line, call).await?,
        };
        judge(reply).map_err(|error| error.within(shown))
    }

    /// Whether less than a tenth is left of what GitHub allows us.
    pub(super) fn is_low(&self) -> bool {
        let account = match &self.credential {
            None => Some(ANONYMOUS.into()),
            Some(credential) => credential.account(),
        };
        account.is_some_and(|account| self.api.line().is_low(&self.api.base, &account))
    }
}

fn judge(reply: Reply) -> Result<Reply, BackendError> {
    let advice = match reply.status.as_u16() {
        200 => return Ok(reply),
        301 | 302 | 307 | 308 => "was the repository renamed or moved? write its present name",
        // A private repository looks like none at all to who may not see it.
        404 => {
            let message = format!(
                "404 Not Found: {}: it is not there, or the credential may not see it; check the repository's name, and that \
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
