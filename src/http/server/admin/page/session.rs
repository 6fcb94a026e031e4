//! The visitor of the page: by a session's cookie, or by the token that a proxy sends with each request.

use http::{HeaderMap, HeaderValue, header, request::Parts};

use super::super::{
    super::{
        error::{ApiError, Code},
        peer, refusal_of,
    },
    NO_VIEWER, origin,
};
use crate::{app::App, http::page::Visitor};
use auth::{Role, Session};

/// The cookie over TLS. Browsers take a cookie with this prefix only if it is `Secure` and of this host alone.
const SECURE_COOKIE: &str = "__Host-appset-gateway";
/// The cookie in cleartext, on this machine only.
const LOCAL_COOKIE: &str = "appset-gateway";
/// How long a browser keeps it, in seconds. The session ends then too.
const MAX_AGE: u32 = 8 * 60 * 60;
/// How many cookies of one name are tried. Other programs on this machine may set some.
const MAX_TRIED: usize = 8;

/// Why there is no session.
pub(super) enum SessionEnd {
    /// There is no session.
    Nobody,
    /// The caller may not read the page.
    Refused(ApiError),
}

/// The session of a request.
///
/// # Errors
/// When it has none. A wrong token in `Authorization` counts as a refusal of its address, and no cookie makes up for it.
pub(super) async fn of(app: &App, head: &Parts) -> Result<Session, SessionEnd> {
    let setup = app.setup();
    if head.headers.contains_key(header::AUTHORIZATION) {
        return match setup.auth.authenticate(&head.headers, peer(&head.extensions)).await {
            Ok(caller) if caller.role.may_look() => Ok(app.sessions.of_bearer(caller)),
            Ok(_) => Err(SessionEnd::Refused(ApiError::new(Code::Forbidden, NO_VIEWER))),
            Err(refused) => Err(SessionEnd::Refused(refusal_of(&setup.auth, &head.extensions, refused, NO_VIEWER))),
        };
    }
    if !may_have_session(app, head) {
        return Err(SessionEnd::Nobody);
    }
    ids(app, &head.headers).find_map(|id| app.sessions.find(&setup.auth, id)).ok_or(SessionEnd::Nobody)
}

/// Whether a session may travel on the connection of this request.
pub(super) fn may_have_session(app: &App, head: &Parts) -> bool {
    app.admin_tls.is_some() || origin::is_loopback(head)
}

/// The ids in a request's cookies.
pub(super) fn ids<'a>(app: &App, headers: &'a HeaderMap) -> impl Iterator<Item = &'a str> + use<'a> {
    let wanted = name(app);
    let all = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(move |(name, _)| *name == wanted).map(|(_, id)| id).take(MAX_TRIED)
}

/// The `Set-Cookie` of a session, or of none.
pub(super) fn cookie(app: &App, id: Option<&str>) -> HeaderValue {
    let secure = if app.admin_tls.is_some() { "; Secure" } else { "" };
    let (id, max_age) = id.map_or(("", 0), |id| (id, MAX_AGE));
    let text = format!("{}={id}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Strict{secure}", name(app));
    // An id is in the alphabet of base64.
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

fn name(app: &App) -> &'static str {
    if app.admin_tls.is_some() { SECURE_COOKIE } else { LOCAL_COOKIE }
}

/// How the page shows whose session it is.
pub(super) fn visitor_of(session: &Session) -> Visitor {
    Visitor {
        name: session.caller.name.clone(),
        role: session.caller.role.as_str(),
        may_decide: session.caller.role == Role::Admin,
        can_leave: session.is_kept,
        form_token: session.form_token.clone(),
    }
}

/// The message for forms without the session's token. Another replica may have made them.
const STALE_FORM: &str = "the form is not of this session; load the page again, and send it again";

/// Checks a form of `session`: no other site sent it, and it has the session's token.
///
/// # Errors
/// When that is not so.
pub(super) fn check_form(head: &Parts, session: &Session, form_token: Option<&str>) -> Result<(), ApiError> {
    if !origin::is_own(head) {
        return Err(ApiError::new(Code::Forbidden, origin::FOREIGN));
    }
    if !form_token.is_some_and(|token| session.has_form_token(token)) {
        return Err(ApiError::new(Code::Forbidden, STALE_FORM));
    }
    Ok(())
}
