//! The client of a cluster's API server (`TokenReview`, authentication.k8s.io/v1). Tokens that are known to be good have an HTTP client of their
//! own, with its own concurrency limit and breaker, so that unknown tokens cannot use those up.

use std::net::IpAddr;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{answer::ReviewAnswer, config::TokenReviewConfig};
use crate::{AuthContext, url_policy::safe_url};
use domain::{
    error::BackendError,
    problem::{Path, Problems},
    secret::Secret,
    section::Section,
};
use outbound::{
    Reply,
    kubernetes::{ApiAccess, ApiCall, ApiServer},
};
use telemetry::metrics::ReviewMetrics;

/// How many reviews of unknown tokens may be under way.
pub(crate) const MAX_REVIEWS: usize = 6;
/// How many reviews of tokens that were good a short time ago may be under way.
const MAX_REVIEWS_OF_KNOWN: usize = 4;
/// The largest answer that is read, in bytes.
const MAX_REPLY_BYTES: usize = 1024 * 1024;

/// Which token is reviewed.
#[derive(Debug, Clone, Copy)]
pub(super) enum About {
    /// An unknown token from this address.
    UnknownToken(IpAddr),
    /// A token that was good a short time ago.
    KnownToken,
}

/// A cluster's API server.
pub(super) struct ReviewApi {
    /// For unknown tokens.
    server: ApiServer,
    /// For known tokens.
    reserved: ApiServer,
    /// The accepted audiences.
    pub audiences: Vec<String>,
    metrics: ReviewMetrics,
}

impl ReviewApi {
    /// Checks `config`, at `path`. Sends nothing.
    pub(super) fn build(
        config: &TokenReviewConfig,
        means: AuthContext<'_>,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<Self> {
        if config.audiences.is_empty() || config.audiences.iter().any(String::is_empty) {
            let help = "name one for this gateway alone, such as appset-gateway";
            problems.error_with_help(
                &path.key("audiences"),
                "without an audience, tokens for other services would be accepted",
                help,
            );
        }
        let url = problems.note(&path.key("api"), safe_url(&config.api));
        let access = ApiAccess { url, token: &config.token, ca: &config.ca, concurrency: MAX_REVIEWS };
        let mut section = Section::new(means.base, path.clone(), problems);
        let server = ApiServer::build(access, means.outbound, &mut section)?;
        let reserved = server.with_concurrency(MAX_REVIEWS_OF_KNOWN, means.outbound).ok()?;
        Some(Self { server, reserved, audiences: config.audiences.clone(), metrics: means.metrics.callers.reviews() })
    }

    /// Whether `other` is the same server, with the same audiences.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.server.url() == other.server.url() && self.audiences == other.audiences
    }

    /// The metrics of reviews.
    pub(super) const fn metrics(&self) -> &ReviewMetrics {
        &self.metrics
    }

    /// Reviews `token`.
    ///
    /// # Errors
    /// When there is no answer by `deadline`.
    pub(super) async fn ask(
        &self,
        about: About,
        token: &Secret,
        deadline: Instant,
    ) -> Result<ReviewAnswer, BackendError> {
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token.expose(), "audiences": self.audiences},
        });
        let answer = self.send(about, &request, token, deadline).await;
        self.metrics.reviewed(match &answer {
            Ok(ReviewAnswer::Theirs(_)) => "authenticated",
            Ok(ReviewAnswer::ForOthers | ReviewAnswer::Nobodys(_)) => "refused",
            Err(_) => "failed",
        });
        answer
    }

    async fn send(
        &self,
        about: About,
        review: &Value,
        token: &Secret,
        deadline: Instant,
    ) -> Result<ReviewAnswer, BackendError> {
        let server = match about {
            About::UnknownToken(_) => &self.server,
            About::KnownToken => &self.reserved,
        };
        let call = ApiCall {
            method: Method::POST,
            path: &["apis", "authentication.k8s.io", "v1", "tokenreviews"],
            query: &[],
            body: Some(("application/json", review.to_string().into())),
            max_bytes: MAX_REPLY_BYTES,
            deadline,
            recorded_as: None,
        };
        let (shown, reply) = server.send(call).await;
        let mut reply = reply?;
        reply.secrets.push(token.clone());
        let read = || ReviewAnswer::read(&reply.body, &self.audiences);
        let answer =
            check(&reply).and_then(|()| read().map_err(|error| BackendError::invalid_output(error.to_string())));
        answer
            .map(|answer| match answer {
                ReviewAnswer::Nobodys(why) => ReviewAnswer::Nobodys(reply.secrets.excerpt(why.as_bytes(), 200)),
                answer => answer,
            })
            .map_err(|error| reply.secrets.clean(&error).within(shown))
    }
}

/// Checks whether `reply` is a review.
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
