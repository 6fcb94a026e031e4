//! Signing in with a token, and signing out.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Request, State},
    response::Response,
};
use http::{header, request::Parts};
use url::{Url, form_urlencoded};

use super::{
    super::{
        super::{
            Sender, admit,
            completion::Completion,
            discard,
            error::{ApiError, Code},
            peer, refusal_of,
        },
        origin,
    },
    SIGN_IN, SIGN_OUT, begin,
    form::{Form, receive},
    frame,
    session::{self, cookie, ids, may_have_session},
};
use crate::{
    app::App,
    http::page::{self, notice},
};

/// The message for a token that opens nothing.
const UNKNOWN_TOKEN: &str = "this is not a token with the role `admin` or `viewer`";
/// The message where a session could be read on its way.
const NOT_PRIVATE: &str = "nobody can sign in over this connection, because it is not encrypted";
/// The longest path to come back to, in bytes.
const MAX_BACK: usize = 2000;

/// Where a visitor signs in, to come back to the page of `head`.
pub(super) fn path_back_to(head: &Parts) -> String {
    let wanted = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    if wanted == "/" {
        return SIGN_IN.to_owned();
    }
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("to", wanted).finish();
    format!("{SIGN_IN}?{query}")
}

/// The path of this listener that `text` names. Anything else is the first view: never another site.
fn own_path(text: &str) -> String {
    let base = Url::parse("http://gateway.invalid/");
    let url = base.ok().filter(|_| text.len() <= MAX_BACK && text.starts_with('/')).and_then(|base| {
        let url = base.join(text).ok()?;
        (url.origin() == base.origin() && !url.path().starts_with("//")).then_some(url)
    });
    url.map_or_else(|| "/".to_owned(), |url| url[url::Position::BeforePath..url::Position::AfterQuery].to_owned())
}

/// `GET /login`: the form, or the page itself after the sign-in.
pub(super) async fn show(State(app): State<Arc<App>>, request: Request) -> Response {
    let (completion, head, body) = begin(&app, SIGN_IN, request);
    discard(body).await;
    let query = form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes());
    let to = query.into_owned().find(|(name, _)| name == "to").map_or_else(|| "/".to_owned(), |(_, to)| own_path(&to));
    if session::of(&app, &head).await.is_ok() {
        return completion.lead_to(&to);
    }
    let html = drawn(&app, &head, &to, None);
    completion.show(html)
}

fn drawn(app: &App, head: &Parts, to: &str, problem: Option<&str>) -> String {
    // The browser sent no cookie with a link of another site, even if there is a session.
    let is_led = head.headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site");
    let content = notice::sign_in(to, problem, may_have_session(app, head), is_led);
    page::draw(&frame(app, "Sign in", None, None, false), &content)
}

/// `POST /login`: opens a session for the holder of a token.
pub(super) async fn sign_in(State(app): State<Arc<App>>, request: Request) -> Response {
    let (mut completion, head, body) = begin(&app, SIGN_IN, request);
    let (to, opened) = opened(&app, &mut completion, &head, body).await;
    match opened {
        Ok(id) => {
            let mut response = completion.lead_to(&to);
            response.headers_mut().insert(header::SET_COOKIE, cookie(&app, Some(&id)));
            response
        }
        Err(error) => completion.refuse_shown(error, |error, _| drawn(&app, &head, &to, Some(&error.message))),
    }
}

/// Where the form leads, and the id of a new session.
async fn opened(
    app: &App,
    completion: &mut Completion,
    head: &Parts,
    body: Body,
) -> (String, Result<String, ApiError>) {
    let first = "/".to_owned();
    for (is_so, message) in [(origin::is_own(head), origin::FOREIGN), (may_have_session(app, head), NOT_PRIVATE)] {
        if !is_so {
            discard(body).await;
            return (first, Err(ApiError::new(Code::Forbidden, message)));
        }
    }
    let form = match Form::read(head, body, Sender::Unproven).await {
        Ok(form) => form,
        Err(error) => return (first, Err(error)),
    };
    let to = own_path(form.get("to").unwrap_or("/"));
    let token = form.get("token").unwrap_or_default().trim();
    let setup = app.setup();
    match app.sessions.sign_in(&setup.auth, token, peer(&head.extensions)).await {
        Ok((id, caller)) => {
            admit(&head.extensions);
            ids(app, &head.headers).for_each(|former| app.sessions.sign_out(former));
            completion.caller = Some(caller);
            (to, Ok(id))
        }
        Err(refused) => (to, Err(refusal_of(&setup.auth, &head.extensions, refused, UNKNOWN_TOKEN))),
    }
}

/// `POST /logout`: ends the session.
pub(super) async fn sign_out(State(app): State<Arc<App>>, request: Request) -> Response {
    receive(app, SIGN_OUT, request, |sent| async move {
        ids(&sent.app, &sent.head.headers).for_each(|id| sent.app.sessions.sign_out(id));
        let mut response = sent.completion.lead_to(SIGN_IN);
        response.headers_mut().insert(header::SET_COOKIE, cookie(&sent.app, None));
        response
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_led_to_another_site() {
        for (text, path) in [
            ("/held?page=2", "/held?page=2"),
            ("/held/a%2Fb#x", "/held/a%2Fb"),
            ("/a/../held", "/held"),
            ("/\"><script>", "/%22%3E%3Cscript%3E"),
            ("//evil.example", "/"),
            ("/\\evil.example", "/"),
            ("/\t/evil.example", "/"),
            ("/.//evil.example", "/"),
            ("https://evil.example", "/"),
            ("held", "/"),
            ("", "/"),
        ] {
            assert_eq!(own_path(text), path, "{text}");
        }
        assert_eq!(own_path(&format!("/{}", "x".repeat(3000))), "/");
    }

    #[test]
    fn an_unauthenticated_operator_signs_in_and_comes_back_to_the_page() {
        let path = |uri: &str| path_back_to(&http::Request::get(uri).body(()).unwrap().into_parts().0);
        assert_eq!(path("/"), "/login");
        assert_eq!(path("/held?page=2&x=%26"), "/login?to=%2Fheld%3Fpage%3D2%26x%3D%2526");
    }
}
