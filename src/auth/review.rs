//! Callers that a Kubernetes API server vouches for: it is asked whose token it is (`TokenReview`), for the gateway's own audience,
//! and what it said holds for a short time. Only JWTs are shown to it, as service accounts have them: a mistyped password is nobody
//! else's business.
//!
//! Strangers pay for being asked about: their address has a budget and few places, and what cannot be good is not asked about at all.
//! Whose token was good a short time ago waits for none of them, and is still believed for a while where the API server does not
//! answer.

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

pub(crate) use self::config::TokenReviewConfig;
use self::{
    answer::{ReviewAnswer, User},
    api::{About, Api, PLACES},
    callers::Reviewed,
    known::{Good, KnownTokens},
    permits::ReviewPermits,
};
use super::{Allowance, AuthContext, Caller, Compact, Refused, TokenHash, budget::Budget};
use crate::{
    domain::{
        clock::{Clock, Timestamp},
        document::excerpt,
        error::BackendError,
        problem::{Path, Problems},
    },
    flight::{FlightGuard, Flights, Join, wait::wait},
};

/// How long the API server is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// How much of that a question about a stranger has at least, which is enough for a server that is well. It waits for a place before.
const LEAST: Duration = Duration::from_secs(3);
/// How long it is waited for where its last word stands in for its answer.
const SOON: Duration = Duration::from_secs(1);
/// How many questions there may be at once about tokens of strangers at one address.
const PLACES_PER_PEER: usize = 2;
/// About how many such tokens it may be asked without a pause.
const AT_ONCE: NonZeroU32 = NonZeroU32::new(20).expect("it is not 0");
/// About how many more each second.
const PER_SECOND: NonZeroU32 = NonZeroU32::new(2).expect("it is not 0");

/// A cluster's API server, and the tokens that it was asked about.
pub(crate) struct Reviews {
    api: Api,
    callers: Vec<Reviewed>,
    known: KnownTokens,
    flights: Flights<TokenHash, (), Answer>,
    /// About how many tokens of strangers it may be asked.
    budget: Arc<Budget>,
    places: ReviewPermits,
    /// Whether its last word stands in for its answers, so that it is told once.
    is_silent: AtomicBool,
    clock: Arc<dyn Clock>,
}

/// What came of a review.
type Verdict = Result<Arc<Caller>, Refused>;
/// The same, where there may have been none.
type Answer = Result<Verdict, BackendError>;

impl Reviews {
    /// Checks `config`, which stands at `path`. The API server is not asked.
    pub(crate) fn build(
        config: &TokenReviewConfig,
        means: AuthContext<'_>,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<Self> {
        if config.callers.is_empty() {
            let help = "name one: `callers: [ { user: \"system:serviceaccount:argocd:*\" } ]`";
            problems.error_with_help(&path.key("callers"), "without any, nobody's token is taken", help);
        }
        let at = path.key("callers");
        let callers = config.callers.iter().enumerate();
        let callers =
            callers.filter_map(|(index, config)| Reviewed::build(config, &at.index(index), problems)).collect();
        Some(Self {
            api: Api::build(config, means, path, problems)?,
            callers,
            known: KnownTokens::new(),
            flights: Flights::default(),
            budget: Arc::new(Budget::new(AT_ONCE, PER_SECOND)),
            places: ReviewPermits::new(PLACES, PLACES_PER_PEER),
            is_silent: AtomicBool::new(false),
            clock: Arc::clone(means.clock),
        })
    }

    /// Takes over what addresses have spent, and what the same API server said of good tokens.
    pub(crate) fn take_over(&mut self, former: &Self) {
        self.budget = Arc::clone(&former.budget);
        if self.api.is_same(&former.api) {
            self.known.take_over(&former.known, |user| self.caller(user));
        }
    }

    /// What its callers may ask, by what they are called in the configuration.
    pub(crate) fn allowances(&self) -> impl Iterator<Item = (&str, &Arc<Allowance>)> {
        self.callers.iter().map(Reviewed::allowance)
    }

    /// The same, to be put in another's place.
    pub(crate) fn allowances_mut(&mut self) -> impl Iterator<Item = (&str, &mut Arc<Allowance>)> {
        self.callers.iter_mut().map(Reviewed::allowance_mut)
    }

    /// What was found out about the token with this hash, if that still holds at `now`.
    pub(crate) fn known(&self, token: &TokenHash, now: Timestamp) -> Option<Verdict> {
        self.known.verdict(token, now)
    }

    /// The caller of `token`, whose hash is `hash`, and which somebody at `peer` sent. The API server is asked once, however many send
    /// it.
    ///
    /// # Errors
    /// When it is nobody's, for somebody else, or that is not known.
    pub(crate) async fn admit(self: &Arc<Self>, token: &Compact<'_>, hash: TokenHash, peer: IpAddr) -> Verdict {
        let now = self.clock.now();
        if let Some(good) = self.known.good(&hash, now) {
            return self.ask_again(token, hash, &good).await;
        }
        if let Err(why) = token.check_likely(&self.api.audiences, now) {
            self.api.metrics().spared("unlikely");
            return Err(Refused::wrong(format!("auth.tokenReview: the API server is not asked: {why}")));
        }
        let deadline = Instant::now() + PATIENCE;
        let join = || self.join(About::Stranger(peer), token, hash, deadline);
        wait(join, deadline).await.unwrap_or_else(|error| Err(unknown(&error)))
    }

    /// The caller of a token that was `good`. Its last word stands where the API server does not answer soon.
    async fn ask_again(self: &Arc<Self>, token: &Compact<'_>, hash: TokenHash, good: &Good) -> Verdict {
        let deadline = Instant::now() + PATIENCE;
        let join = || self.join(About::KnownTokens, token, hash, deadline);
        let asked = wait(join, deadline);
        if !good.stands(self.clock.now()) {
            return asked.await.unwrap_or_else(|error| Err(unknown(&error)));
        }
        let error = match timeout(SOON, asked).await {
            Ok(Ok(verdict)) => {
                if self.is_silent.swap(false, Ordering::Relaxed) {
                    tracing::info!("the API server answers again (auth.tokenReview)");
                }
                return verdict;
            }
            Ok(Err(error)) => error.message,
            // It goes on, and what comes of it counts for the next call.
            Err(_) => format!("no answer within {} s", SOON.as_secs()),
        };
        good.failed(self.clock.now());
        self.api.metrics().spared("stood_in");
        if !self.is_silent.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                error,
                caller = good.caller.name,
                "the API server does not answer; what it said last stands for 5 minutes (auth.tokenReview)"
            );
        }
        Ok(Arc::clone(&good.caller))
    }

    /// Joins those who wait for a review of `token`, or begins one.
    fn join(self: &Arc<Self>, about: About, token: &Compact<'_>, hash: TokenHash, deadline: Instant) -> Join<Answer> {
        let (reviews, expires) = (Arc::clone(self), token.expires());
        let token = token.whole();
        let recheck = || {
            let known = self.known(&hash, self.clock.now());
            let known = known.or_else(|| match about {
                About::KnownTokens => None,
                About::Stranger(peer) => self.spend(peer).err().map(Err),
            });
            known.map(Ok)
        };
        let begin = deadline.checked_sub(LEAST).unwrap_or(deadline);
        let work = move |seat: FlightGuard<_, _, _>| async move {
            let said = match about {
                About::KnownTokens => reviews.api.ask(about, &token, deadline).await,
                About::Stranger(peer) => {
                    let place = timeout_at(begin, reviews.places.enter(peer)).await;
                    if place.is_ok() {
                        reviews.api.ask(about, &token, deadline).await
                    } else {
                        reviews.api.metrics().spared("busy");
                        Err(BackendError::unavailable("others are asked about, and there was no place in time"))
                    }
                }
            };
            seat.land(|_| said.map(|said| reviews.settle(said, hash, expires)))
        };
        self.flights.join(hash, recheck, || (), work)
    }

    /// Spends what somebody at `peer` has to be asked about.
    fn spend(&self, peer: IpAddr) -> Result<(), Refused> {
        self.budget.spend(peer).map_err(|after| {
            self.api.metrics().spared("throttled");
            Refused::Later(after)
        })
    }

    /// Notes for a while what the API server said.
    fn settle(&self, said: ReviewAnswer, hash: TokenHash, expires: Option<Timestamp>) -> Verdict {
        let since = self.clock.now();
        let expires = expires.unwrap_or(since);
        let why = match said {
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

/// Whose a token is could not be found out.
fn unknown(error: &BackendError) -> Refused {
    Refused::Unknown(format!("auth.tokenReview: whose token it is is not known: {error}"))
}
