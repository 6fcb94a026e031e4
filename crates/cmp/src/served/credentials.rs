//! Git credentials that relays offer for their calls.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use http::Response;
use hyper::body::Frame;
use parking_lot::Mutex;
use tokio::{
    sync::mpsc,
    time::{Duration, timeout},
};

use super::Served;
use crate::{
    askpass::{AskpassSocket, Query},
    exchange::credentials::{CredentialsMessage, CredentialsPart, CredentialsQuery, Login, OFFER},
    grpc::{
        reader::MessageReader,
        reply::{self, ReplyBody},
        status::{Code, Status},
    },
    run::RunEnvironment,
    service::unimplemented,
};

/// How long a relay may take to name its offer.
const OPENING: Duration = Duration::from_secs(10);
/// The most offers of one plugin that are open at once.
const MAX_OFFERS: usize = 10_000;

/// The offers that are open, by their random bytes, and where questions go.
#[derive(Debug, Clone, Default)]
pub(super) struct Offers(Arc<Mutex<HashMap<Bytes, mpsc::Sender<Query>>>>);

/// An offer that is open. Dropping it closes it.
struct Open {
    offers: Offers,
    offer: Bytes,
}

impl Offers {
    fn open(&self, offer: Bytes) -> Result<(Open, mpsc::Receiver<Query>), Status> {
        let (queries, asked) = mpsc::channel(1);
        let mut offers = self.0.lock();
        if offers.len() >= MAX_OFFERS {
            let message = format!("{MAX_OFFERS} calls with Git credentials are under way");
            return Err(Status::new(Code::ResourceExhausted, message));
        }
        if offer.len() != OFFER || offers.contains_key(&offer) {
            return Err(Status::unknown(format!("an offer of Git credentials is named by {OFFER} random bytes")));
        }
        offers.insert(offer.clone(), queries);
        drop(offers);
        Ok((Open { offers: self.clone(), offer }, asked))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.offers.0.lock().remove(&self.offer);
    }
}

impl Served {
    /// Whether runs get Git credentials that a relay offers: plugin.yaml wants them, and the settings allow it.
    pub(super) fn takes_git_credentials(&self) -> bool {
        self.plugin().provide_git_creds && self.runner.settings().git_credentials
    }

    /// `Credentials` of the exchange: an offer that is open until the relay ends the call.
    pub(super) async fn offered(&self, mut messages: MessageReader) -> Response<ReplyBody> {
        // As a service that has no such method: the relay then calls without an offer.
        if !self.takes_git_credentials() {
            return reply::failure(&unimplemented("Credentials"));
        }
        let first = timeout(OPENING, messages.next::<CredentialsMessage>()).await;
        let Ok(Ok(Some(CredentialsMessage { part: Some(CredentialsPart::Offer(offer)) }))) = first else {
            return reply::failure(&Status::unknown("the first message is not an offer"));
        };
        match self.offers.open(offer) {
            Ok((open, asked)) => {
                let (frames, received) = mpsc::channel(1);
                tokio::spawn(pass_on(open, asked, messages, frames));
                reply::stream(received)
            }
            Err(status) => reply::failure(&status),
        }
    }

    /// The variables of a run that may use `offer`, and the socket that answers it. Without an offer, `environment` as it is.
    ///
    /// # Errors
    /// When the offer is gone, or there is no socket.
    pub(super) fn with_credentials(
        &self,
        environment: RunEnvironment,
        offer: &Bytes,
    ) -> Result<(RunEnvironment, Option<AskpassSocket>), Status> {
        if offer.is_empty() || !self.takes_git_credentials() {
            return Ok((environment, None));
        }
        let queries = self.offers.0.lock().get(offer).cloned();
        // The connection to the relay is broken, or another replica was meant.
        let queries = queries.ok_or_else(|| Status::new(Code::Unavailable, "the offer of Git credentials is gone"))?;
        let failed = |error| Status::unknown(format!("Git credentials have no socket: {error}"));
        let socket = AskpassSocket::new(&self.common.askpass, queries).map_err(failed)?;
        Ok((environment.with_askpass(&socket), Some(socket)))
    }
}

/// Passes questions on to the relay, one after the other, until it is gone.
async fn pass_on(
    _open: Open,
    mut asked: mpsc::Receiver<Query>,
    mut messages: MessageReader,
    frames: mpsc::Sender<Frame<Bytes>>,
) {
    loop {
        let Query { url, answer } = tokio::select! {
            () = frames.closed() => return,
            asked = asked.recv() => match asked {
                Some(query) => query,
                None => return,
            },
        };
        if frames.send(Frame::data(reply::frame(&CredentialsQuery { url }))).await.is_err() {
            return;
        }
        let answered: Result<Login, String> = match messages.next::<CredentialsMessage>().await {
            Ok(Some(CredentialsMessage { part: Some(CredentialsPart::Login(login)) })) => Ok(login),
            Ok(Some(CredentialsMessage { part: Some(CredentialsPart::Refusal(why)) })) => Err(why),
            _ => return,
        };
        // Nobody waits any more if the run was ended.
        let _ = answer.send(answered);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_open_once_and_until_it_is_dropped() {
        let offers = Offers::default();
        let offer = Bytes::from_static(&[7; OFFER]);
        let (open, _asked) = offers.open(offer.clone()).unwrap();
        assert!(offers.open(offer.clone()).is_err() && offers.open(Bytes::from_static(b"short")).is_err());
        drop(open);
        assert!(offers.open(offer).is_ok() && offers.0.lock().is_empty());
    }
}
