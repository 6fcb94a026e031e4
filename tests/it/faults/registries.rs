//! Faults of registries only: denials. All other sources get the nearest equivalent.

use super::rendition::{
    FAILED, Fault, HELD, HTML, INVALID, JSON, Rendition, THROTTLED, UNKNOWN, Wire, plays, prints, runs, says,
};

/// A registry's error for an unknown repository.
const NO_NAME: &str = r#"{"errors":[{"code":"NAME_UNKNOWN","message":"repository name not known to registry"}]}"#;
const NO_NAME_OR_RIGHT: &str = r#"{"errors":[{"code":"NAME_UNKNOWN"},{"code":"DENIED"}]}"#;
const DENIED: &str = r#"{"errors":[{"code":"DENIED","message":"requested access to the resource is denied"}]}"#;

/// Denials. Only a denial that the configuration treats as absence is absence.
pub(super) fn registries() -> Vec<Fault> {
    let challenge = format!("{JSON}\r\nWWW-Authenticate: Bearer realm=\"x\"");
    let no_name = |code| says(code, 404, JSON, NO_NAME);
    let denied = |code| says(code, 403, JSON, DENIED);
    let paused = || says(THROTTLED, 403, &format!("{JSON}\r\nRetry-After: 120"), DENIED);
    let page = || says(FAILED, 403, HTML, "<html>Forbidden</html>");
    vec![
        Fault::new(
            "401 after a good token",
            runs(FAILED, "echo '[]'; echo 'the server returned 401' >&2; exit 22"),
            says(FAILED, 401, JSON, "[]"),
            with_tokens(200),
        ),
        Fault::new(
            "a token server that fails",
            prints(r#"{"error":"temporarily_unavailable","output":{"parameters":[]}}"#),
            says(FAILED, 401, &challenge, "[]"),
            with_tokens(503),
        ),
        // Some registries answer alike for private and for missing repositories.
        Fault::new(
            "a token server that denies",
            prints(DENIED),
            says(FAILED, 401, &challenge, DENIED),
            with_tokens(403),
        )
        .lenient(),
        Fault::new("no such repository", prints(NO_NAME), no_name(INVALID), no_name(HELD)).listed(no_name(INVALID)),
        Fault::new("no such repository, which may be", prints(NO_NAME), no_name(INVALID), no_name(HELD)).lenient(),
        Fault::new(
            "no such repository, or no right to it",
            prints(NO_NAME_OR_RIGHT),
            says(INVALID, 404, JSON, NO_NAME_OR_RIGHT),
            says(INVALID, 404, JSON, NO_NAME_OR_RIGHT),
        )
        .lenient(),
        // The error means a missing tag, but never an empty list, and never that there are no signatures.
        Fault::new("403 for what is missing", prints(DENIED), denied(FAILED), denied(HELD))
            .listed(denied(FAILED))
            .signed(FAILED)
            .lenient(),
        Fault::new("403, a proxy's page", prints("<html>Forbidden</html>"), page(), page()).lenient(),
        Fault::new("403 with Retry-After", runs(FAILED, "echo '[]'; exit 75"), paused(), paused()).lenient().pausing(),
    ]
}

/// A registry that accepts no token, and whose token server answers with `status`.
fn with_tokens(status: u16) -> Rendition<Wire> {
    plays(FAILED, move |request| {
        if request.target.starts_with("/token") {
            // Longer than the fault lasts, also on a busy machine: afterwards nobody serves tokens.
            return request.answer(status, JSON, r#"{"token":"good","expires_in":3600}"#);
        }
        let realm = format!("http://{}/token", request.header("host").unwrap());
        request.answer(401, &format!("{JSON}\r\nWWW-Authenticate: Bearer realm=\"{realm}\""), UNKNOWN)
    })
}
