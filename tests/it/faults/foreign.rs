//! Complete answers that signal, each in its own way, that they are partial or unreliable.

use serde_json::json;

use super::rendition::{Fault, INVALID, JSON, OCI, Rendition, Wire, plays, prints, says};

/// A number that 64 bits do not hold.
const LONG: &str = "18446744073709551616";

/// All faults of this kind.
pub(super) fn foreign() -> Vec<Fault> {
    [errors(), pages(), readings()].into_iter().flatten().collect()
}

/// An empty list beside an error.
fn errors() -> Vec<Fault> {
    let fault = |name, plugin: &str, http: &str, list: &str| {
        let gate = http.replace(r#""items":[]"#, r#""result":"passed""#);
        Fault::content(name, plugin, (200, OCI, http.as_bytes()), list)
            .wrapped(says(INVALID, 200, JSON, http))
            .gated(gate)
    };
    vec![
        fault(
            "an error beside an empty list",
            r#"{"output":{"parameters":[]},"error":"database is down"}"#,
            r#"{"items":[],"error":"database is down"}"#,
            r#"{"tags":[],"error":"database is down"}"#,
        ),
        fault(
            "errors as an object",
            r#"{"output":{"parameters":[]},"Errors":{"eu":"down"}}"#,
            r#"{"items":[],"errors":{"eu":"down"}}"#,
            r#"{"tags":[],"Errors":{"eu":"down"}}"#,
        ),
        fault(
            "errors as a list of texts",
            r#"{"output":{"parameters":[]},"errors":["down"]}"#,
            r#"{"items":[],"errors":["down"]}"#,
            r#"{"tags":[],"errors":["down"]}"#,
        ),
    ]
}

/// An empty page that is one of several.
fn pages() -> Vec<Fault> {
    let part = || prints(r#"{"items":[],"next":2}"#);
    let linked = |name, link: &str| {
        let link = |target: &str| format!("{JSON}\r\nLink: {}", link.replace("TARGET", target));
        let tag = says(INVALID, 200, &link("?last=a"), r#"{"tags":[]}"#);
        let list = says(INVALID, 200, &link("?last=a"), r#"{"name":"org/app","tags":[]}"#);
        Fault::new(name, part(), says(INVALID, 200, &link("?page=2"), "[]"), tag).listed(list)
    };
    let headed = |name, headers: &str| {
        let headers = format!("{JSON}\r\n{headers}");
        Fault::new(name, part(), says(INVALID, 200, &headers, "[]"), says(INVALID, 200, &headers, r#"{"tags":[]}"#))
            .listed(full_page())
    };
    let remaining = r#"{"metadata":{"remainingItemCount":7},"items":[]}"#;
    vec![
        linked("a next page in single quotes", "<TARGET>; rel='next'"),
        linked("a next page in `rel*`", "<TARGET>; rel*=UTF-8''next"),
        linked("a next page behind an unclosed quote", "</>; title=\"x, <TARGET>; rel=\"next\""),
        headed("the number of a next page", "X-Next-Page: 2"),
        headed("a total that does not fit", "X-Per-Page: 20\r\nX-Next-Page: \r\nX-Total: 7"),
        Fault::new(
            "items that remain",
            part(),
            says(INVALID, 200, JSON, remaining),
            says(INVALID, 200, OCI, remaining),
        )
        .wrapped(says(INVALID, 200, JSON, remaining))
        .listed(full_page()),
    ]
}

/// A full page of tags, and the same page again for the next one.
fn full_page() -> Rendition<Wire> {
    plays(INVALID, |request| {
        let (_, query) = request.target.split_once('?').unwrap_or_default();
        let wanted = query.split('&').find_map(|pair| pair.strip_prefix("n=")?.parse().ok()).unwrap_or(1);
        let tags: Vec<String> = (0..wanted).map(|number: usize| format!("t{number}")).collect();
        request.answer(200, JSON, json!({"name": "org/app", "tags": tags}).to_string())
    })
}

/// An empty list that another parser would read differently.
fn readings() -> Vec<Fault> {
    let unknown = r#"{"Errors":[{"code":"MANIFEST_UNKNOWN"}]}"#;
    let long = |before: &str| format!("{before}{LONG}}}");
    let detail = format!("{{\"errors\":[{{\"code\":\"MANIFEST_UNKNOWN\",\"detail\":{LONG}}}]}}");
    vec![
        Fault::content(
            "a word that is not documented",
            "\"skipped\"",
            (404, JSON, br#"{"errors":[{"code":"SKIPPED"}]}"#),
            "\"skipped\"",
        )
        .gated(r#"{"result":"skipped"}"#),
        Fault::content(
            "one key in two cases",
            r#"{"output":{"parameters":[{}]},"Output":{"parameters":[]}}"#,
            (404, JSON, unknown.as_bytes()),
            r#"{"Tags":[]}"#,
        )
        .wrapped(says(INVALID, 200, JSON, r#"{"Items":[]}"#)),
        Fault::content(
            "a number of 65 bits",
            long(r#"{"output":{"parameters":[]},"version":"#),
            (404, JSON, detail.as_bytes()),
            long(r#"{"tags":[],"count":"#),
        )
        .wrapped(says(INVALID, 200, JSON, long(r#"{"items":[],"next":"#)))
        .gated(long(r#"{"result":"passed","build":"#)),
    ]
}
