//! Callers that a Kubernetes API server vouches for: it is asked whose token it is (`TokenReview`), for the gateway's own audience,
//! and what it said holds for a short time. Only JWTs are shown to it, as service accounts have them: a mistyped password is nobody
//! else's business.

mod answer;
mod callers;
mod config;

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use moka::sync::Cache;
use reqwest::Url;
use serde_json::{Value, json};
use tokio::time::Instant;

pub use self::config::{ReviewedConfig, TokenReviewConfig};
use self::{answer::Said, callers::Reviewed};
use super::{Caller, Compact, Means, Refused, TokenHash, way::safe_url};
use crate::{
    base_dir::BaseDir,
    clock::{Clock, Timestamp},
    document::excerpt,
    error::BackendError,
    flight::{Flights, Seat},
    landing::landed,
    outbound::{Call, Line, Reply, TlsKeys},
    problem::{Path, Problems},
    secret::{Secret, SecretRef},
    telemetry::metrics::ReviewMetrics,
};

/// How long a good token is believed without asking: so long one that was revoked still works.
const GOOD_FOR: Duration = Duration::from_mins(1);
/// How long a bad one is.
const BAD_FOR: Duration = Duration::from_secs(10);
/// How long the API server is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many tokens are remembered.
const MOST_KNOWN: u64 = 4096;
/// The largest answer that is read, in bytes.
const MOST: usize = 1024 * 1024;

/// A cluster's API server, and the tokens that it was asked about.
pub struct Reviews {
    url: Url,
    token: SecretRef,
    base: BaseDir,
    line: Arc<Line>,
    audiences: Vec<String>,
    callers: Vec<Reviewed>,
    known: Cache<TokenHash, Known>,
    flights: Flights<TokenHash, (), Result<Verdict, BackendError>>,
    clock: Arc<dyn Clock>,
    metrics: ReviewMetrics,
}

/// What came of a review.
type Verdict = Result<Arc<Caller>, Refused>;

/// What is known of a token.
#[derive(Debug, Clone)]
struct Known {
    verdict: Verdict,
    since: Timestamp,
    lasts: Duration,
}

impl Reviews {
    /// Checks `config`, which stands at `path`. The API server is not asked.
    pub fn build(
        config: &TokenReviewConfig,
        means: Means<'_>,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<Arc<Self>> {
        if config.audiences.is_empty() || config.audiences.iter().any(String::is_empty) {
            let help = "name one for this gateway alone, such as appset-gateway";
            problems.error_with_help(
                &path.key("audiences"),
                "without an audience, tokens for others would be taken",
                help,
            );
        }
        if config.callers.is_empty() {
            let help = "name one: `callers: [ { user: \"system:serviceaccount:argocd:*\" } ]`";
            problems.error_with_help(&path.key("callers"), "without any, nobody's token is taken", help);
        }
        config.token.check(means.base, &path.key("token"), problems);
        let at = path.key("callers");
        let callers = config.callers.iter().enumerate();
        let callers =
            callers.filter_map(|(index, config)| Reviewed::build(config, &at.index(index), problems)).collect();
        let api = problems.note(&path.key("api"), safe_url(&config.api));
        let is_plain = api.as_ref().is_some_and(|url| url.scheme() == "http");
        let keys = TlsKeys { ca: Some(&config.ca).filter(|_| !is_plain), ..TlsKeys::default() };
        let line = keys.line(is_plain, means.outbound, means.base, path, problems);
        let mut url = api?;
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["apis", "authentication.k8s.io", "v1", "tokenreviews"]);
        }
        Some(Arc::new(Self {
            url,
            token: config.token.clone(),
            base: means.base.clone(),
            line: line?,
            audiences: config.audiences.clone(),
            callers,
            known: Cache::new(MOST_KNOWN),
            flights: Flights::default(),
            clock: Arc::clone(means.clock),
            metrics: means.metrics.callers.reviews(),
        }))
    }

    /// What was found out about the token with this hash, if that still holds at `now`.
    pub fn known(&self, token: &TokenHash, now: Timestamp) -> Option<Verdict> {
        let known = self.known.get(token)?;
        now.since(known.since).is_some_and(|age| age < known.lasts).then_some(known.verdict)
    }

    /// The caller of `token`, whose hash is `hash`. The API server is asked once, however many send it.
    ///
    /// # Errors
    /// When it is nobody's, for somebody else, or that is not known.
    pub async fn admit(self: &Arc<Self>, token: &Compact<'_>, hash: TokenHash) -> Verdict {
        let deadline = Instant::now() + PATIENCE;
        let expires = token.expires();
        let board = || {
            let (reviews, token) = (Arc::clone(self), token.whole());
            let work = move |seat: Seat<_, _, _>| async move {
                let said = reviews.ask(&token, deadline).await;
                seat.land(|_| said.map(|said| reviews.settle(said, hash, expires)))
            };
            self.flights.board(hash, || self.known(&hash, self.clock.now()).map(Ok), || (), work)
        };
        landed(board, deadline).await.unwrap_or_else(|error| {
            Err(Refused::Unknown(format!("auth.tokenReview: whose token it is is not known: {error}")))
        })
    }

    /// Asks the API server about `token`.
    async fn ask(&self, token: &Secret, deadline: Instant) -> Result<Said, BackendError> {
        let asked = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token.expose(), "audiences": self.audiences},
        });
        let said = self.send(&asked, token, deadline).await;
        self.metrics.reviewed(match &said {
            Ok(Said::Theirs(_)) => "authenticated",
            Ok(Said::ForOthers | Said::Nobodys(_)) => "refused",
            Err(_) => "failed",
        });
        said
    }

    async fn send(&self, asked: &Value, token: &Secret, deadline: Instant) -> Result<Said, BackendError> {
        let json = HeaderValue::from_static("application/json");
        let mut headers = HeaderMap::from_iter([(header::ACCEPT, json.clone()), (header::CONTENT_TYPE, json)]);
        headers.insert(header::AUTHORIZATION, self.token.header(&self.base, "Bearer ")?);
        let body = Some(asked.to_string().into());
        let call = Call { method: Method::POST, headers, body, ..Call::get(self.url.clone(), MOST, deadline) };
        let shown = call.to_string();
        let mut reply = self.line.fetch(call).await?;
        reply.secrets.push(token.clone());
        let said =
            check(&reply).and_then(|()| Said::read(&reply.body, &self.audiences).map_err(BackendError::invalid_output));
        said.map(|said| match said {
            Said::Nobodys(why) => Said::Nobodys(reply.secrets.excerpt(why.as_bytes(), 200)),
            said => said,
        })
        .map_err(|error| reply.secrets.clean(&error).within(shown))
    }

    /// Notes for a while what the API server said.
    fn settle(&self, said: Said, hash: TokenHash, expires: Option<Timestamp>) -> Verdict {
        let verdict = match said {
            Said::Theirs(user) => self.callers.iter().find_map(|callers| callers.caller(&user)).ok_or_else(|| {
                let name = excerpt(user.username.as_bytes(), 200);
                let why = format!("the cluster's user `{name}` is none of `auth.tokenReview.callers`");
                Refused::Unfit { who: Some(name), why }
            }),
            Said::ForOthers => {
                let audiences = self.audiences.join("`, `");
                Err(Refused::unfit(format!("the token is for another audience; it must be for `{audiences}`")))
            }
            Said::Nobodys(why) => {
                Err(Refused::wrong(format!("auth.tokenReview: the API server does not know it: {why}")))
            }
        };
        let since = self.clock.now();
        let most = if verdict.is_ok() { GOOD_FOR } else { BAD_FOR };
        let left = expires.map(|end| end.since(since).unwrap_or_default());
        let known = Known { verdict: verdict.clone(), since, lasts: left.map_or(most, |left| left.min(most)) };
        self.known.insert(hash, known);
        verdict
    }
}

/// Whether `reply` is a review at all.
fn check(reply: &Reply) -> Result<(), BackendError> {
    match reply.status {
        StatusCode::OK | StatusCode::CREATED => reply.check_json(),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            let error = reply.refusal();
            let advice = "the gateway's own service account needs the cluster role `system:auth-delegator`";
            Err(BackendError { message: format!("{}; {advice}", error.message), ..error })
        }
        _ => Err(reply.refusal()),
    }
}
