//! Sessions of people at the page: a token that is shown once opens one. A session keeps the hash of the token and of its own id, so that the
//! memory of the gateway opens nothing. It ends with its token, and after some hours.

use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use aws_lc_rs::hmac;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use super::{Auth, Caller, Refused, Role, TokenHash};
use domain::clock::Timestamp;

/// How long a session lasts.
const LIFE: Duration = Duration::from_hours(8);
/// How many sessions there are at most. The oldest is ended.
const MAX_SESSIONS: usize = 512;
/// How many of them one caller has. Several people may share its token.
const MAX_OF_CALLER: usize = 64;
/// How many random bytes an id has.
const ID_BYTES: usize = 32;

/// The open sessions of this process.
pub struct Sessions {
    open: Mutex<HashMap<[u8; 32], Open>>,
    /// Makes the tokens of forms. Another process has another one.
    key: hmac::Key,
}

struct Open {
    token: TokenHash,
    caller: String,
    role: Role,
    since: Timestamp,
}

/// A session that is valid now.
pub struct Session {
    /// The caller of the session.
    pub caller: Arc<Caller>,
    /// The token of its forms.
    pub form_token: String,
    /// Whether it is kept here. Otherwise each request contains its caller.
    pub is_kept: bool,
}

impl Sessions {
    /// No session.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn new() -> Result<Self, getrandom::Error> {
        // From the kernel: aws-lc first gathers randomness of its own for tens of milliseconds, and each start would wait for it.
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Self { open: Mutex::default(), key: hmac::Key::new(hmac::HMAC_SHA256, &key) })
    }

    /// Opens a session for the holder of `token`. Returns its secret id and its caller.
    ///
    /// # Errors
    /// When the token is wrong or not valid now, cannot be checked, or has a role that may not read.
    pub async fn sign_in(&self, auth: &Auth, token: &str, peer: IpAddr) -> Result<(String, Arc<Caller>), Refused> {
        let caller = auth.holder(token.as_bytes(), peer).await?;
        let unfit = |why: &str| {
            let why = format!("the token of `{}` opens no session: {why}", caller.name);
            Refused::Unfit { who: Some(caller.name.clone()), why }
        };
        if !caller.role.may_look() {
            return Err(unfit("it has neither `role: admin` nor `role: viewer`, see `auth`"));
        }
        let token: TokenHash = Sha256::digest(token).into();
        if auth.known(&token).is_none() {
            return Err(unfit("the API server must check it each time; use one of `auth.tokens` or `auth.jwt`"));
        }
        let mut id = [0; ID_BYTES];
        getrandom::fill(&mut id).map_err(|_| Refused::Unknown("the system gives no random bytes".to_owned()))?;
        let id = BASE64_URL_SAFE_NO_PAD.encode(id);
        let since = auth.clock.now();
        let open = Open { token, caller: caller.name.clone(), role: caller.role, since };
        let mut sessions = self.open.lock();
        sessions.retain(|_, session| session.is_young(since));
        make_room(&mut sessions, MAX_OF_CALLER, |session| session.caller == open.caller);
        make_room(&mut sessions, MAX_SESSIONS, |_| true);
        sessions.insert(hash(&id), open);
        Ok((id, caller))
    }

    /// The session with this `id`, if its token still has the same caller and role.
    pub fn find(&self, auth: &Auth, id: &str) -> Option<Session> {
        let id = hash(id);
        let mut sessions = self.open.lock();
        let session = sessions.get(&id)?;
        let is_same = |caller: &Arc<Caller>| caller.name == session.caller && caller.role == session.role;
        let caller = auth.known(&session.token).filter(is_same).filter(|_| session.is_young(auth.clock.now()));
        let Some(caller) = caller else {
            sessions.remove(&id);
            return None;
        };
        Some(Session { caller, form_token: self.form_token(&[b"session", &id]), is_kept: true })
    }

    /// Ends the session with this `id`.
    pub fn sign_out(&self, id: &str) {
        self.open.lock().remove(&hash(id));
    }

    /// The session of a `caller` whom each request identifies by a token that a proxy sends.
    pub fn of_bearer(&self, caller: Arc<Caller>) -> Session {
        let form_token = self.form_token(&[b"bearer", caller.role.as_str().as_bytes(), caller.name.as_bytes()]);
        Session { caller, form_token, is_kept: false }
    }

    fn form_token(&self, parts: &[&[u8]]) -> String {
        let tag = hmac::sign(&self.key, &parts.join(&0));
        BASE64_URL_SAFE_NO_PAD.encode(tag.as_ref())
    }
}

impl Session {
    /// Whether `presented` is the token of its forms.
    #[must_use]
    pub fn has_form_token(&self, presented: &str) -> bool {
        subtle::ConstantTimeEq::ct_eq(self.form_token.as_bytes(), presented.as_bytes()).into()
    }
}

impl Open {
    /// Whether it has not ended by its age. It has when the clock was put back.
    fn is_young(&self, now: Timestamp) -> bool {
        now.since(self.since).is_some_and(|age| age < LIFE)
    }
}

fn hash(id: &str) -> [u8; 32] {
    Sha256::digest(id).into()
}

/// Ends the oldest sessions that `is_meant`, until one more of them is allowed.
fn make_room(sessions: &mut HashMap<[u8; 32], Open>, max: usize, is_meant: impl Fn(&Open) -> bool) {
    while sessions.values().filter(|session| is_meant(session)).count() >= max {
        let meant = sessions.iter().filter(|(_, session)| is_meant(session));
        let Some(oldest) = meant.min_by_key(|(_, session)| session.since).map(|(id, _)| *id) else { return };
        sessions.remove(&oldest);
    }
}
