//! The sources: each destination to which the gateway sends requests, whether it works, and the rest of its budgets.

use serde::{Deserialize, Serialize};

use super::{date, milliseconds};
use crate::app::App;
use domain::clock::Timestamp;
use outbound::{AccountNow, BreakerPosition, DestinationNow};

/// How many destinations are listed. Those without trouble are left out first.
const MAX_LISTED: usize = 1000;

/// All destinations.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Sources {
    /// Those that get no requests first, then by origin.
    pub(crate) sources: Vec<Source>,
    /// How many there are in all.
    pub(crate) total: usize,
}

/// One destination. It is listed once for each set of certificates and limits with which it is called.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Source {
    /// The scheme, the host and the port.
    pub(crate) origin: String,
    /// Its name in metrics: a host of the configuration, or `other`.
    pub(crate) destination: String,
    /// Whether only the candidates of shadows call it.
    pub(crate) for_shadows: bool,
    /// Whether requests are sent.
    pub(crate) breaker: BreakerState,
    /// Failures in a row.
    pub(crate) failures: u32,
    /// When the first of these came.
    pub(crate) failing_since: Option<String>,
    /// The last of these.
    pub(crate) reason: Option<String>,
    /// How long no request is sent.
    #[serde(rename = "restsForSeconds")]
    pub(crate) backoff_seconds: Option<u64>,
    /// How many requests are under way.
    pub(crate) in_flight: usize,
    /// How many may be under way.
    pub(crate) concurrency: usize,
    /// How many may begin per second, if that is limited.
    pub(crate) rate_per_second: Option<u32>,
    /// How many requests were sent.
    pub(crate) requests: u64,
    /// How long they took on average. The last ten or so count most.
    pub(crate) mean_milliseconds: Option<f64>,
    /// The last request.
    pub(crate) last: Option<LastRequest>,
    /// The accounts with a known budget, or with a pause.
    pub(crate) accounts: Vec<AccountBudget>,
}

/// The breaker of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum BreakerState {
    /// Requests are sent.
    Closed,
    /// No request is sent.
    Open,
    /// One request at a time is sent, and tries whether the destination works again.
    Probing,
}

/// The last request to a destination.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LastRequest {
    /// When it ended.
    pub(crate) at: String,
    /// How it ended, as in metrics.
    pub(crate) outcome: String,
    /// The status of the answer.
    pub(crate) status: Option<u16>,
    /// Why there was no answer.
    pub(crate) message: Option<String>,
    /// How long it took.
    pub(crate) milliseconds: f64,
}

/// An account at a destination.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AccountBudget {
    /// `anonymous`, a name, or `credential 1` and so on, which reveals nothing about the credential.
    pub(crate) account: String,
    /// How many requests it may send in all.
    pub(crate) limit: Option<u64>,
    /// How many of these were left.
    pub(crate) remaining: Option<u64>,
    /// When an answer reported that.
    pub(crate) known_at: Option<String>,
    /// How long until the limit starts again.
    pub(crate) resets_in_seconds: Option<u64>,
    /// How long the account pauses.
    pub(crate) pauses_for_seconds: Option<u64>,
    /// Why it pauses.
    pub(crate) reason: Option<String>,
}

/// The destinations of `app`.
pub(crate) fn sources(app: &App) -> Sources {
    let setup = app.setup();
    let (own, of_shadows) = setup.outbound();
    let of_routes = own.destinations().into_iter().map(|destination| Source::of(destination, false));
    let of_shadows = of_shadows.map(|outbound| outbound.destinations()).into_iter().flatten();
    let mut sources: Vec<Source> =
        of_routes.chain(of_shadows.map(|destination| Source::of(destination, true))).collect();
    sources.sort_by_key(|source| source.breaker == BreakerState::Closed);
    let total = sources.len();
    sources.truncate(MAX_LISTED);
    Sources { sources, total }
}

impl Source {
    fn of(destination: DestinationNow, for_shadows: bool) -> Self {
        let DestinationNow { breaker, exchanges, .. } = destination;
        let mut credentials = 0;
        Self {
            origin: destination.origin.to_string(),
            destination: destination.name,
            for_shadows,
            breaker: match breaker.position {
                BreakerPosition::Closed => BreakerState::Closed,
                BreakerPosition::Open => BreakerState::Open,
                BreakerPosition::Probing => BreakerState::Probing,
            },
            failures: breaker.failures,
            failing_since: breaker.failing_since.map(date),
            reason: Some(breaker.why).filter(|why| !why.is_empty()),
            backoff_seconds: Some(breaker.backoff.as_secs() + 1).filter(|_| !breaker.backoff.is_zero()),
            in_flight: destination.in_flight,
            concurrency: destination.concurrency,
            rate_per_second: destination.per_second,
            requests: exchanges.count,
            mean_milliseconds: (exchanges.count > 0).then(|| milliseconds(exchanges.mean)),
            last: exchanges.last.map(|last| LastRequest {
                at: date(last.at),
                outcome: last.outcome.to_owned(),
                status: last.status,
                message: last.why,
                milliseconds: milliseconds(last.took),
            }),
            accounts: destination.accounts.iter().map(|account| AccountBudget::of(account, &mut credentials)).collect(),
        }
    }
}

impl AccountBudget {
    fn of(account: &AccountNow, credentials: &mut usize) -> Self {
        // The account of a credential is its hash, by which a weak one could be guessed.
        let name = if account.account.starts_with("sha256:") {
            *credentials += 1;
            format!("credential {credentials}")
        } else {
            account.account.to_string()
        };
        Self {
            account: name,
            limit: account.limit,
            remaining: account.remaining,
            known_at: account.known_at.map(|at: Timestamp| date(at)),
            resets_in_seconds: account.resets_in.map(|left| left.as_secs()),
            pauses_for_seconds: account.pause.as_ref().map(|(left, _)| left.as_secs() + 1),
            reason: account.pause.as_ref().map(|(_, why)| why.to_string()),
        }
    }
}
