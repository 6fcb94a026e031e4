//! Callers that a Kubernetes API server authenticates. It checks the token (`TokenReview`) for the gateway's own audience, and its
//! answer is remembered for a short time. Only JWTs are sent to it, as service accounts have them; a mistyped password is not.
//!
//! Reviews of unknown tokens are limited per address, in rate and in concurrency, and a token that cannot be good is not reviewed. Tokens
//! that were good a short time ago have their own limits, and are accepted for a while if the API server does not answer.

mod answer;
mod api;
mod callers;
mod config;
mod known;
mod permits;

use std::{
    net::IpAddr,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, timeout, timeout_at};

pub use self::config::TokenReviewConfig;
use self::{
    answer::{ReviewAnswer, User},
    api::{About, MAX_REVIEWS, ReviewApi},
    callers::Reviewed,
    known::{Good, KnownTokens},
    permits::ReviewPermits,
};
use super::{Allowance, AuthContext, Caller, Compact, Refused, TokenHash, budget::Budget};
use domain::{
    clock::{Clock, Timestamp},
    document::excerpt,
    error::BackendError,
    problem::{Path, Problems},
};
use flight::{FlightGuard, FlightJoin, Flights, wait::wait};

/// How long a caller waits for the API server.
const PATIENCE: Duration = Duration::from_secs(5);
/// The part of that time which is left for the review of an unknown token after it has waited for a permit. It is enough for a healthy server.
const MIN_REVIEW_TIME: Duration = Duration::from_secs(3);
/// How long a caller waits if the API server's last answer can be used instead.
const SHORT_PATIENCE: Duration = Duration::from_secs(1);
/// How many unknown tokens of one address may be under review at once.
const REVIEWS_PER_PEER: usize = 2;
/// How many unknown tokens of one address are reviewed without a pause.
const REVIEW_BURST: NonZeroU32 = NonZeroU32::new(20).expect("it is not 0");
/// How many more unknown tokens of one address are then reviewed per second.
const REVIEWS_PER_SECOND: NonZeroU32 = NonZeroU32::new(2).expect("it is not 0");

/// A cluster's API server, and the tokens that it reviewed.
pub(crate) struct Reviews {
    api: ReviewApi,
    callers: Vec<Reviewed>,
    known: KnownTokens,
    flights: Flights<TokenHash, (), Answer>,
    /// The budget of each address for reviews of unknown tokens.
    budget: Arc<Budget>,
    permits: ReviewPermits,
    /// Whether the API server does not answer now, so that this is logged once.
    is_silent: AtomicBool,
    clock: Arc<dyn Clock>,
}

/// The result of a review.
type Verdict = Result<Arc<Caller>, Refused>;
/// The same, or why there was no review.
type Answer = Result<Verdict, BackendError>;

impl Reviews {
    /// Checks `config`, at `path`. Sends nothing to the API server.
    pub(crate) fn build(
        config: &TokenReviewConfig,
        means: AuthContext<'_>,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<Self> {
        if config.callers.is_empty() {
            let help = "name one: `callers: [ { user: \"system:serviceaccount:argocd:*\" } ]`";
            problems.error_with_help(&path.key("callers"), "without callers, no token is accepted", help);
        }
        let at = path.key("callers");
        let callers = config.callers.iter().enumerate();
        let callers =
            callers.filter_map(|(index, config)| Reviewed::build(config, &at.index(index), problems)).collect();
        Some(Self {
            api: ReviewApi::build(config, means, path, problems)?,
            callers,
            known: KnownTokens::new(),
            flights: Flights::default(),
            budget: Arc::new(Budget::new(REVIEW_BURST, REVIEWS_PER_SECOND)),
            permits: ReviewPermits::new(MAX_REVIEWS, REVIEWS_PER_PEER),
            is_silent: AtomicBool::new(false),
            clock: Arc::clone(means.clock),
        })
    }

    /// Takes over the spent budgets, and the good tokens if the API server is the same.
    pub(crate) fn take_over(&mut self, former: &Self) {
        self.budget = Arc::clone(&former.budget);
        if self.api.is_same(&former.api) {
            self.known.take_over(&former.known, |user| self.caller(user));
        }
    }

    /// The allowances, by the entries' names.
    pub(crate) fn allowances(&self) -> impl Iterator<Item = (&str, &Arc<Allowance>)> {
        self.callers.iter().map(Reviewed::allowance)
    }

    /// The same, for replacing them.
    pub(crate) fn allowances_mut(&mut self) -> impl Iterator<Item = (&str, &mut Arc<Allowance>)> {
        self.callers.iter_mut().map(Reviewed::allowance_mut)
    }

    /// The remembered result for the token with this hash, if it still holds at `now`.
    pub(crate) fn known(&self, token: &TokenHash, now: Timestamp) -> Option<Verdict> {
        self.known.verdict(token, now)
    }

    /// The caller of `token`, whose hash is `hash`, and which came from `peer`. Requests with the same token share one review.
    ///
    /// # Errors
    /// When the token is not good, is for another audience, or cannot be reviewed.
    pub(crate) async fn admit(self: &Arc<Self>, token: &Compact<'_>, hash: TokenHash, peer: IpAddr) -> Verdict {
        let now = self.clock.now();
        if let Some(good) = self.known.good(&hash, now) {
            return self.ask_again(token, hash, &good).await;
        }
        if let Err(why) = token.check_likely(&self.api.audiences, now) {
            self.api.metrics().spared("unlikely");
            return Err(Refused::wrong(format!("auth.tokenReview: no request is sent to the API server: {why}")));
        }
        let deadline = Instant::now() + PATIENCE;
        let join = || self.join(About::UnknownToken(peer), token, hash, deadline);
        wait(join, deadline).await.unwrap_or_else(|error| Err(unknown(&error)))
    }

    /// The caller of a token that was `good`. If the API server does not answer soon, its last answer is used.
    async fn ask_again(self: &Arc<Self>, token: &Compact<'_>, hash: TokenHash, good: &Good) -> Verdict {
        let deadline = Instant::now() + PATIENCE;
        let join = || self.join(About::KnownToken, token, hash, deadline);
        let reviewed = wait(join, deadline);
        if !good.stands(self.clock.now()) {
            return reviewed.await.unwrap_or_else(|error| Err(unknown(&error)));
        }
        let error = match timeout(SHORT_PATIENCE, reviewed).await {
            Ok(Ok(verdict)) => {
                if self.is_silent.swap(false, Ordering::Relaxed) {
                    tracing::info!("the API server answers again (auth.tokenReview)");
                }
                return verdict;
            }
            Ok(Err(error)) => error.message,
            // The review continues, and the next call uses its result.
            Err(_) => format!("no answer within {} s", SHORT_PATIENCE.as_secs()),
        };
        good.failed(self.clock.now());
        self.api.metrics().spared("last_review");
        if !self.is_silent.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                error,
                caller = good.caller.name,
                "the API server does not answer; its last answer is used for 5 minutes (auth.tokenReview)"
            );
        }
        Ok(Arc::clone(&good.caller))
    }

    /// Joins the review of `token` that is under way, or starts one.
    fn join(
        self: &Arc<Self>,
        about: About,
        token: &Compact<'_>,
        hash: TokenHash,
        deadline: Instant,
    ) -> FlightJoin<Answer> {
        let (reviews, expires) = (Arc::clone(self), token.expires());
        let token = token.whole();
        let second_lookup = || {
            let known = self.known(&hash, self.clock.now());
            let known = known.or_else(|| match about {
                About::KnownToken => None,
                About::UnknownToken(peer) => self.spend(peer).err().map(Err),
            });
            known.map(Ok)
        };
        let begin = deadline.checked_sub(MIN_REVIEW_TIME).unwrap_or(deadline);
        let work = move |seat: FlightGuard<_, _, _>| async move {
            let answer = match about {
                About::KnownToken => reviews.api.ask(about, &token, deadline).await,
                About::UnknownToken(peer) => {
                    let permit = timeout_at(begin, reviews.permits.enter(peer)).await;
                    if permit.is_ok() {
                        reviews.api.ask(about, &token, deadline).await
                    } else {
                        reviews.api.metrics().spared("busy");
                        Err(BackendError::unavailable("too many other tokens are under review"))
                    }
                }
            };
            seat.finish(|_| answer.map(|answer| reviews.finish(answer, hash, expires)))
        };
        self.flights.join(hash, second_lookup, || (), work)
    }

    /// Spends one review of the budget of `peer`.
    fn spend(&self, peer: IpAddr) -> Result<(), Refused> {
        self.budget.spend(peer).map_err(|after| {
            self.api.metrics().spared("throttled");
            Refused::Later(after)
        })
    }

    /// Remembers the API server's answer for a while.
    fn finish(&self, answer: ReviewAnswer, hash: TokenHash, expires: Option<Timestamp>) -> Verdict {
        let since = self.clock.now();
        let expires = expires.unwrap_or(since);
        let why = match answer {
            ReviewAnswer::Theirs(user) => {
                if let Some(caller) = self.caller(&user) {
                    self.known.admit(hash, Arc::clone(&caller), user, since, expires);
                    return Ok(caller);
                }
                let name = excerpt(user.username.as_bytes(), 200);
                let why = format!("the cluster's user `{name}` is none of `auth.tokenReview.callers`");
                Refused::Unfit { who: Some(name), why }
            }
            ReviewAnswer::ForOthers => {
                let audiences = self.api.audiences.join("`, `");
                Refused::unfit(format!("the token is for another audience; it must be for `{audiences}`"))
            }
            ReviewAnswer::Nobodys(why) => {
                Refused::wrong(format!("auth.tokenReview: the API server does not know it: {why}"))
            }
        };
        self.known.refuse(hash, why.clone(), since, expires);
        Err(why)
    }

    fn caller(&self, user: &User) -> Option<Arc<Caller>> {
        self.callers.iter().find_map(|callers| callers.caller(user))
    }
}

/// The refusal when a token could not be reviewed.
fn unknown(error: &BackendError) -> Refused {
    Refused::Unknown(format!("auth.tokenReview: the token could not be reviewed: {error}"))
}
