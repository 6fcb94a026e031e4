//! The state of the clients' destinations, for operators. Nothing here is secret: no path, no query, no body, and accounts without
//! their credentials.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use super::{
    HttpClient, Outbound, Outcome,
    breaker::{BreakerNow, BreakerPosition},
    budget::AccountNow,
    counts,
    destination::{Exchange, Exchanges},
};
use domain::clock::Timestamp;

/// One destination of one client.
#[derive(Debug)]
pub struct DestinationNow {
    /// The scheme, the host and the port.
    pub origin: Arc<str>,
    /// Its name in metrics: a host of the configuration, or `other`.
    pub name: String,
    /// The breaker.
    pub breaker: BreakerNow,
    /// The requests that were sent.
    pub exchanges: Exchanges,
    /// How many requests are under way.
    pub in_flight: usize,
    /// How many may be under way.
    pub concurrency: usize,
    /// How many may begin per second.
    pub per_second: Option<u32>,
    /// The accounts with a known budget, or with a pause.
    pub accounts: Vec<AccountNow>,
}

impl Outbound {
    /// All destinations that are remembered: those that get no requests first, then by origin. A destination is listed once for each
    /// client, since clients with other certificates or limits share nothing.
    pub fn destinations(&self) -> Vec<DestinationNow> {
        let clients: Vec<Arc<HttpClient>> = self.clients.lock().values().map(Arc::clone).collect();
        let mut all: Vec<DestinationNow> = clients.iter().flat_map(|client| client.seen(self.clock.now())).collect();
        let is_closed = |one: &DestinationNow| one.breaker.position == BreakerPosition::Closed;
        all.sort_by(|one, other| {
            let order = |one: &DestinationNow| (is_closed(one), Reverse(one.breaker.failures), Arc::clone(&one.origin));
            order(one).cmp(&order(other))
        });
        all
    }
}

impl HttpClient {
    fn seen(&self, now: Timestamp) -> Vec<DestinationNow> {
        let mut accounts = self.budgets.accounts(now);
        accounts.sort_by(|(_, one), (_, other)| one.account.cmp(&other.account));
        let seen = self.destinations.snapshot().into_iter().map(|(origin, destination)| {
            let of_origin = accounts.iter().filter(|(of, _)| *of == origin).map(|(_, account)| account.clone());
            DestinationNow {
                accounts: of_origin.collect(),
                name: self.named.of_origin(&origin).to_owned(),
                origin,
                breaker: destination.breaker.now(now),
                exchanges: destination.exchanges(),
                in_flight: destination.in_flight(),
                concurrency: destination.concurrency(),
                per_second: destination.per_second(),
            }
        });
        seen.collect()
    }
}

/// A request that was sent, without the content of its answer.
pub(super) fn exchange(outcome: &Outcome, took: Duration, at: Timestamp) -> Exchange {
    let (status, why) = match outcome {
        Ok(reply) => (Some(reply.status.as_u16()), None),
        Err(failure) => (None, Some(failure.message.clone())),
    };
    Exchange { at, took, outcome: counts::sent(outcome), status, why }
}
