//! Replies to an API whose configuration has `absent`: replies that are nearly the proof, and the proof itself. All other sources get the
//! nearest equivalent.

use super::rendition::{FAILED, Fault, HELD, HTML, INVALID, JSON, OCI, THROTTLED, UNKNOWN, prints, runs, says};

/// The proof, as a configuration describes it.
const PROOF: &str = "status == 404 && has(body.code) && body.code == 'not_found'";
/// A configuration that takes any 404 and any body for a proof.
const ANY: &str = "status != 200 || type(body) != list";
const NOT_FOUND: &str = r#"{"code":"not_found"}"#;
const NO_ROUTE: &str = r#"{"message":"no Route matched with those values"}"#;

pub(super) fn absent() -> Vec<Fault> {
    let page = "<html><body>404 Not Found</body></html>";
    let wire = |code, status, headers, body: &str| says(code, status, headers, body);
    let curl = |status: u16| runs(FAILED, &format!("echo '[]'; echo 'the server returned {status}' >&2; exit 22"));
    let refused = |name, code, status| {
        let again = || wire(code, status, JSON, NOT_FOUND);
        Fault::new(name, curl(status), again(), again()).absent(ANY)
    };
    vec![
        // Its content type is not that of the API.
        Fault::new(
            "`absent`: a proxy's 404",
            prints(page),
            wire(INVALID, 404, HTML, page),
            wire(INVALID, 404, HTML, page),
        )
        .absent(ANY),
        Fault::new(
            "`absent`: the 404 of another path",
            prints(NO_ROUTE),
            wire(INVALID, 404, JSON, NO_ROUTE),
            wire(INVALID, 404, JSON, NO_ROUTE),
        )
        .absent(PROOF),
        Fault::new(
            "`absent`: a 404 that is cut short",
            prints(&NOT_FOUND[..15]),
            wire(INVALID, 404, JSON, &NOT_FOUND[..15]),
            wire(INVALID, 404, JSON, &UNKNOWN[..15]),
        )
        .absent(PROOF),
        Fault::new(
            "`absent`: a 200 that says not found",
            prints(NOT_FOUND),
            wire(INVALID, 200, JSON, NOT_FOUND),
            wire(INVALID, 200, OCI, NOT_FOUND),
        )
        .listed(wire(INVALID, 200, JSON, NOT_FOUND))
        .absent(PROOF),
        Fault::new(
            "`absent`: a 200 with an error",
            prints(r#"{"error":"not found"}"#),
            wire(INVALID, 200, JSON, r#"{"error":"not found"}"#),
            wire(INVALID, 200, OCI, r#"{"error":"not found"}"#),
        )
        .absent(ANY),
        refused("`absent`: 401", FAILED, 401),
        refused("`absent`: 403", FAILED, 403),
        refused("`absent`: 407", FAILED, 407),
        refused("`absent`: 408", FAILED, 408),
        refused("`absent`: 429", THROTTLED, 429).pausing(),
        refused("`absent`: 503", FAILED, 503),
        Fault::new(
            "`absent`: the proof",
            prints(NOT_FOUND),
            wire(HELD, 404, JSON, NOT_FOUND),
            wire(HELD, 404, JSON, UNKNOWN),
        )
        .plugged(wire(INVALID, 404, JSON, NOT_FOUND))
        .listed(wire(INVALID, 404, JSON, UNKNOWN))
        .absent(PROOF),
    ]
}
