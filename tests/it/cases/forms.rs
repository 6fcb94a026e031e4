//! What a file of cases may hold, and what reports show of it.

use super::*;

/// An expectation that any list meets is a mistake, and so is a header that no reply can have.
#[test]
fn cases_that_prove_nothing_are_refused() {
    for (case, expected) in [
        ("expect: {}", "cases[0].expect: nothing is expected, so any list would pass"),
        ("expect: { message: tired }", "cases[0].expect.message: only an `error` has a message"),
        ("expect: { message: tired, cache: miss }", "cases[0].expect.message: only an `error` has a message"),
        ("then: [ { expect: {} } ]", "cases[0].then[0].expect: nothing is expected"),
        (
            "replies: [ { request: GET https://h/, headers: { \"a b\": x } } ]",
            "headers.a b: it is not the name of a header",
        ),
        (
            "replies: [ { request: GET https://h/, headers: { Link: \"a\\nb\" } } ]",
            "headers.Link: it holds characters that no header can carry",
        ),
    ] {
        let folder = folder(URL, &format!("cases:\n  - name: a\n    route: script\n    {case}\n"));
        let (code, printed, error) = cli(folder.path(), &["test"]);
        assert_eq!(code, Some(78), "{case}: {printed}");
        assert!(error.contains(expected), "{case}: {error}");
    }
}

/// A name cannot move the cursor of a terminal, or add cells to a table.
#[test]
fn names_are_shown_without_control_characters() {
    let cases = "cases:\n  - name: \"a\\e[2J\\r\\nb|<b>\\u202e\"\n    route: script\n    expect: { error: held, message: \"\\e[1m\" }\n";
    let folder = folder(URL, cases);
    let (code, printed, _) = cli(folder.path(), &["test"]);
    assert_eq!(code, Some(1));
    assert!(printed.contains(": a\\u{1b}[2J\\r\\nb|<b>\\u{202e}\n"), "{printed}");
    let (_, table, _) = cli(folder.path(), &["test", "-o", "markdown"]);
    assert!(table.contains("| a\\\\u{1b}[2J\\\\r\\\\nb\\|&lt;b>\\\\u{202e} | fail |"), "{table}");
    for text in [printed, table] {
        assert!(!text.contains(['\u{1b}', '\r', '\u{202e}']), "{text:?}");
    }
}

/// A limit that ends before or after `now`: the pause that the source asks for is over, or not.
#[test]
fn the_time_of_a_case_counts() {
    let case = |now: &str, cache: &str| {
        format!(
            r#"
cases:
  - name: a
    route: apps
    now: {now}
    parameters: {{ env: prod }}
    replies:
      - request: GET https://inventory.example.com/apps?env=prod
        headers: {{ X-RateLimit-Remaining: "0", X-RateLimit-Reset: "1793617200" }} # 2026-11-02T11:00:00Z
        body: []
    expect: {{ cache: miss }}
    then:
      - after: 2m
        expect: {{ cache: {cache} }}
"#
        )
    };
    for (now, cache) in [
        ("2026-11-02", "stale_if_error"),
        ("2026-11-02T10:50:00Z", "stale_if_error"),
        ("2026-11-02T11:10:00Z", "miss"),
        ("2026-11-03", "miss"),
    ] {
        let folder = folder(URL, &case(now, cache));
        let (code, printed, error) = cli(folder.path(), &["test"]);
        assert_eq!(code, Some(0), "{now}: {printed}{error}");
    }
    let folder = folder(URL, &case("yesterday", "miss"));
    let (code, _, error) = cli(folder.path(), &["test"]);
    assert!(code == Some(78) && error.contains("it is not a time; write it as `2026-01-31T12:00:00Z`"), "{error}");
}

/// The namespace of the ApplicationSet chooses the route.
#[test]
fn the_namespace_of_the_applicationset_counts() {
    let cases = "cases:\n  - { name: a, applicationSet: x, applicationSetNamespace: team-a, expect: { parameters: [ { name: of-a } ] } }\n  \
                 - { name: b, applicationSet: x, applicationSetNamespace: team-b, expect: { error: unknown_route } }\n  \
                 - { name: c, applicationSet: x, expect: { error: unknown_route } }\n";
    let folder = folder(URL, cases);
    let fixed = json!({"fixed": {"parameters": [{"name": "of-a"}]}});
    let routes = json!([{"name": "a", "match": {"applicationSetNamespace": "team-a"}, "backend": fixed}]);
    let config = format!("auth: {{ tokens: [ {{ name: argocd, env: NOT_SET }} ] }}\nroutes: {routes}\n");
    std::fs::write(folder.path().join("gateway.yaml"), config).unwrap();
    let (code, printed, error) = cli(folder.path(), &["test"]);
    assert_eq!(code, Some(0), "{printed}{error}");
}
