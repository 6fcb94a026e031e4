//! Sends requests to the registry itself, with the password or the token that it demands. A credential that expired is read again once.

use http::{Method, header};
use tokio::time::Instant;

use super::{Registry, RegistryRequest};
use crate::{
    challenge::Challenge,
    credentials::RegistryCredential,
    token::{Purpose, TokenPass, sensitive},
};
use domain::error::{BackendError, ErrorKind};
use outbound::Reply;

/// A challenge that was answered, and the reply to that.
struct Answered {
    challenge: Challenge,
    pass: TokenPass,
    reply: Reply,
    /// All challenges that were tried.
    tried: Vec<Challenge>,
}

/// Whether the registry refuses the credential: the answer to another challenge may be accepted.
fn is_refusal(reply: &Reply) -> bool {
    matches!(reply.status.as_u16(), 401 | 403)
}

impl Registry {
    /// Sends a request to the registry itself, with its credential.
    pub(super) async fn fetch_authorized(
        &self,
        request: &RegistryRequest<'_>,
        deadline: Instant,
    ) -> Result<Reply, BackendError> {
        let (repository, scope) = (request.repository, request.scope());
        let mut credential = self.credentials.find(&self.name, repository, false, deadline).await?;
        let known = self.challenges.get(&scope);
        let Answered { challenge, pass, reply, tried } = if let Some(challenge) = known {
            let pass = self.open(&challenge, request, &mut credential, deadline).await;
            // The token server may have moved. The next request goes without a token, and its 401 has the new challenge.
            let pass = pass.inspect_err(|_| _ = self.challenges.remove(&scope))?;
            let reply = self.send(request, Some(&pass), credential.as_ref(), deadline).await?;
            Answered { tried: vec![challenge.clone()], challenge, pass, reply }
        } else {
            let reply = self.send(request, None, credential.as_ref(), deadline).await?;
            let challenges = match (reply.status.as_u16(), &credential) {
                (401, _) => challenges_of(&reply),
                // A registry that lets anybody read may hide what only the credential may see.
                (404, Some(credential)) => self.offers(credential, deadline).await?,
                // The same for a catalogue: anybody may see a part of it.
                (200, Some(credential)) if request.is_catalogue() => self.offers(credential, deadline).await?,
                _ => return Ok(reply),
            };
            self.answer(challenges, request, &mut credential, deadline).await?
        };
        // An expired credential is a 403 without a challenge at ECR, and a 400 at ECR Public.
        if !matches!(reply.status.as_u16(), 400 | 401 | 403) {
            return Ok(reply);
        }
        // Read again: a pull secret may have been renewed since. With nothing new, another attempt would be refused as well.
        let now = self.credentials.find(&self.name, repository, true, deadline).await?;
        let is_new = pass.was_kept || fingerprint(now.as_ref()) != fingerprint(credential.as_ref());
        let current = challenges_of(&reply);
        // The one that the registry accepted last comes first, unless it is not among them any more.
        let own = Some(challenge.clone()).filter(|own| current.is_empty() || current.contains(own));
        let others = current.into_iter().filter(|other| *other != challenge);
        let next: Vec<Challenge> =
            own.into_iter().chain(others).filter(|next| is_new || !tried.contains(next)).collect();
        if next.is_empty() {
            return Ok(reply);
        }
        if let Some(purpose) = self.purpose(&challenge, &scope)? {
            self.tokens.forget(&purpose, credential.as_ref(), &pass.authorization);
        }
        let (mut failed, mut refused) = (None, None);
        for next in next {
            match self.authorize(&next, &scope, now.as_ref(), deadline).await {
                Ok(fresh) if fresh.authorization == pass.authorization => {}
                Ok(fresh) => {
                    let reply = self.send(request, Some(&fresh), now.as_ref(), deadline).await?;
                    if !is_refusal(&reply) {
                        self.challenges.insert(scope, next);
                        return Ok(reply);
                    }
                    refused = refused.or(Some(reply));
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match (refused, failed) {
            (None, Some(error)) => Err(error),
            (refused, _) => Ok(refused.unwrap_or(reply)),
        }
    }

    /// The ways to log in that the registry offers at its root (distribution specification, "Determining Support"). If it asks for none there, a
    /// user name and password are sent unasked.
    ///
    /// # Errors
    /// When the credential cannot be used, or the root has no clear answer. A reply to anybody then proves nothing.
    async fn offers(&self, credential: &RegistryCredential, deadline: Instant) -> Result<Vec<Challenge>, BackendError> {
        let root = RegistryRequest { method: Method::GET, repository: "", path: "", query: None, url: None };
        let reply = self.send(&root, None, Some(credential), deadline).await?;
        let asks = match reply.status.as_u16() {
            401 => true,
            200 => false,
            _ => {
                let message = format!(
                    "a reply to anybody proves nothing while there is a credential, and /v2/, which says how to use it, answers {}",
                    reply.status
                );
                return Err(BackendError::unavailable(message));
            }
        };
        let unasked = || credential.basic().map(|_| Challenge::Basic).into_iter().collect();
        let challenges: Vec<Challenge> = if asks { challenges_of(&reply) } else { unasked() };
        if !challenges.is_empty() {
            return Ok(challenges);
        }
        let why = if asks {
            "/v2/ asks for a login that is not understood (neither Basic nor Bearer)".to_owned()
        } else {
            format!("/v2/ answers {} and names no token server that would take an identity token", reply.status)
        };
        let message = format!("a reply to anybody proves nothing while the credential cannot be used: {why}");
        Err(BackendError::new(ErrorKind::Denied, message))
    }

    /// Answers the first of the challenges that the registry accepts. The best come first.
    ///
    /// # Errors
    /// When none can be answered. The error is that of the best.
    async fn answer(
        &self,
        challenges: Vec<Challenge>,
        request: &RegistryRequest<'_>,
        credential: &mut Option<RegistryCredential>,
        deadline: Instant,
    ) -> Result<Answered, BackendError> {
        let tried = challenges.clone();
        let mut failed = None;
        let mut refused = None;
        for challenge in challenges {
            let pass = match self.open(&challenge, request, credential, deadline).await {
                Ok(pass) => pass,
                Err(error) => {
                    failed = failed.or(Some(error));
                    continue;
                }
            };
            let reply = self.send(request, Some(&pass), credential.as_ref(), deadline).await?;
            let is_refused = is_refusal(&reply);
            let answered = Answered { challenge, pass, reply, tried: tried.clone() };
            if !is_refused {
                self.challenges.insert(request.scope(), answered.challenge.clone());
                return Ok(answered);
            }
            refused = refused.or(Some(answered));
        }
        if let Some(answered) = refused {
            self.challenges.insert(request.scope(), answered.challenge.clone());
            return Ok(answered);
        }
        Err(failed.unwrap_or_else(|| {
            BackendError::new(ErrorKind::Denied, "401 without a challenge that is understood (Basic or Bearer)")
        }))
    }

    /// The header for `challenge`. If `credential` is refused, its source is read again, and the new credential replaces it.
    async fn open(
        &self,
        challenge: &Challenge,
        request: &RegistryRequest<'_>,
        credential: &mut Option<RegistryCredential>,
        deadline: Instant,
    ) -> Result<TokenPass, BackendError> {
        let scope = request.scope();
        let refusal = match self.authorize(challenge, &scope, credential.as_ref(), deadline).await {
            Err(error) if error.kind == ErrorKind::Denied => error,
            result => return result,
        };
        let now = self.credentials.find(&self.name, request.repository, true, deadline).await?;
        if fingerprint(now.as_ref()) == fingerprint(credential.as_ref()) {
            return Err(refusal);
        }
        *credential = now;
        self.authorize(challenge, &scope, credential.as_ref(), deadline).await
    }

    /// The header for `challenge` with `credential`.
    async fn authorize(
        &self,
        challenge: &Challenge,
        scope: &str,
        credential: Option<&RegistryCredential>,
        deadline: Instant,
    ) -> Result<TokenPass, BackendError> {
        let denied = |why: String| BackendError::new(ErrorKind::Denied, why);
        let Some(purpose) = self.purpose(challenge, scope)? else {
            let basic = credential.and_then(RegistryCredential::basic).ok_or_else(|| {
                denied(
                    "it wants a user name and password; set `dockerConfig` or `identity` for it under `registries`"
                        .to_owned(),
                )
            })?;
            return Ok(TokenPass { authorization: sensitive(basic.expose())?, was_kept: false });
        };
        let account = credential.is_some().then(|| self.account(credential));
        self.tokens.get(purpose, credential.cloned(), account, &self.client, deadline).await
    }

    /// The token to buy. `None` where no token is wanted.
    fn purpose(&self, challenge: &Challenge, scope: &str) -> Result<Option<Purpose>, BackendError> {
        let Challenge::Bearer { realm, service, scope: stated } = challenge else { return Ok(None) };
        let scope = stated.clone().unwrap_or_else(|| scope.to_owned());
        let purpose = Purpose::check(realm, service.clone(), scope, &self.base, |address| self.client.allows(address));
        purpose.map(Some).map_err(|why| BackendError::new(ErrorKind::Denied, why))
    }
}

fn fingerprint(credential: Option<&RegistryCredential>) -> Option<[u8; 32]> {
    credential.map(RegistryCredential::fingerprint)
}

/// The challenges in `reply`, the best first. They are read from each answer, since the scope depends on it.
fn challenges_of(reply: &Reply) -> Vec<Challenge> {
    let values = reply.headers.get_all(header::WWW_AUTHENTICATE).iter();
    let all = values.flat_map(|value| Challenge::read(&String::from_utf8_lossy(value.as_bytes())));
    Challenge::best_first(all.collect())
}
