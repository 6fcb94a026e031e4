//! `Credentials`: a call that lives as long as another one, and passes on what git asks for in a run of that.
//!
//! The relay opens it with an [`Offer`](CredentialsPart::Offer), and names the offer in its [`RelayedCall`](super::RelayedCall). The service sends
//! a [`CredentialsQuery`] when git asks, and the relay answers it before the next one comes. So credentials reach the replica
//! that runs the call, when they are needed, and no other.

use bytes::Bytes;
use domain::secret::Secret;
use prost::{Message, Oneof};

/// The method.
pub(crate) const CREDENTIALS: &str = "/cmpgateway.relay.v1.Relay/Credentials";
/// The bytes of an offer: too many to be guessed.
pub(crate) const OFFER: usize = 32;

/// What the relay sends: the offer, then one answer to each query.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CredentialsMessage {
    /// The content.
    #[prost(oneof = "CredentialsPart", tags = "1, 2, 3")]
    pub(crate) part: Option<CredentialsPart>,
}

/// The kinds of these messages.
#[derive(Clone, PartialEq, Eq, Oneof)]
pub(crate) enum CredentialsPart {
    /// Random bytes, which the call names.
    #[prost(bytes = "bytes", tag = "1")]
    Offer(Bytes),
    /// What git asked for.
    #[prost(message, tag = "2")]
    Login(Login),
    /// Why there is nothing.
    #[prost(string, tag = "3")]
    Refusal(String),
}

/// A user name and a password, as the message of Argo CD's askpass service has them too.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub(crate) struct Login {
    /// The user.
    #[prost(string, tag = "1")]
    pub(crate) username: String,
    /// The password or token.
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

/// Shows neither.
impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login")
    }
}

impl Login {
    /// User name and password, which are zeroed when they are dropped.
    pub(crate) fn into_secrets(self) -> (Secret, Secret) {
        (self.username.into(), self.password.into())
    }
}

/// What git asks for in a run.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CredentialsQuery {
    /// The URL in git's question.
    #[prost(string, tag = "1")]
    pub(crate) url: String,
}

/// The request of Argo CD's askpass service.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub(crate) struct CredentialsRequest {
    /// Names the credentials of one call of Argo CD.
    #[prost(string, tag = "1")]
    pub(crate) nonce: String,
}

/// Does not show the nonce.
impl std::fmt::Debug for CredentialsRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CredentialsRequest")
    }
}
