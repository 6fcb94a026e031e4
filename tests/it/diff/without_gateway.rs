//! Comparisons of recorded answers, without a running gateway.

use super::*;

/// Where a configuration is only tried, nobody calls: callers' tokens are elsewhere. The secrets of routes are needed.
#[test]
fn secrets_of_callers_need_not_be_there() {
    let folder = tempfile::tempdir().unwrap();
    let try_out = |headers: Value| {
        let auth = "auth: { tokens: [ { name: argocd, file: /var/run/argo/none } ] }";
        let route = json!({"name": "r", "backend": {"http": {"url": "http://127.0.0.1:1/", "headers": headers}}});
        std::fs::write(folder.path().join("next.yaml"), format!("{auth}\nroutes: {}\n", json!([route]))).unwrap();
        std::fs::write(folder.path().join("q.yaml"), "questions: [ { route: r, sets: [] } ]").unwrap();
        run(folder.path(), &["diff", "-c", "next.yaml", "--against", "q.yaml"])
    };
    try_out(json!({})).says(3, &["ApplicationSet not known", "no answer  route r (http): "]);
    try_out(json!({"X-Key": {"file": "none"}})).says(78, &["routes[0].backend.http.headers"]);
}

/// Compares recorded answers with those of a route that always gives `next`.
fn fixed(before: &Value, next: &Value, guard: &Value) -> Done {
    let folder = tempfile::tempdir().unwrap();
    let route = json!({"name": "r", "guard": guard, "backend": {"fixed": {"parameters": next}}});
    std::fs::write(folder.path().join("next.yaml"), config(&json!([route]), "")).unwrap();
    let questions = json!({"questions": [{"route": "r", "requesters": ["one"], "sets": before}]});
    std::fs::write(folder.path().join("questions.json"), questions.to_string()).unwrap();
    run(folder.path(), &["diff", "-c", "next.yaml", "--against", "questions.json"])
}

#[test]
fn the_guard_of_the_next_configuration_decides() {
    let named = |names: &[&str]| names.iter().map(|name| json!({ "name": name })).collect::<Value>();
    let (two, none) = (named(&["a", "b"]), json!([]));
    fixed(&two, &none, &json!({}))
        .says(1, &["held by the guard: an empty list after one of 2", "- removed  a", "- removed  b"]);
    fixed(&two, &none, &json!({"onEmpty": "error"})).says(3, &["no answer  route r: an empty list"]);
    // With `confirmAfter: 0` nothing is ever held.
    let done = fixed(&two, &none, &json!({"confirmAfter": 0}));
    done.says(1, &["2 removed, 0 changed; 0 held"]);
    fixed(&two, &two, &json!({"minItems": 3})).says(0, &["2 parameter sets, fewer than `guard.minItems: 3`", "1 held"]);
    fixed(&two, &named(&["a", "a"]), &json!({})).says(3, &["the parameter sets 0 and 1 are both `a`"]);
}

#[test]
fn sets_without_a_key_are_only_counted() {
    let digests = |all: &[&str]| all.iter().map(|digest| json!({ "digest": digest })).collect::<Value>();
    let unclear = "no key identifies the sets: what is changed may also be removed and added";
    fixed(&digests(&["1"]), &digests(&["2"]), &json!({}))
        .says(0, &["~ changed  one with digest: digest \"1\" → \"2\"", unclear]);
    fixed(&digests(&["1", "2"]), &digests(&["3"]), &json!({})).says(1, &["1 removed, 1 changed", unclear]);
    fixed(&digests(&["1", "2"]), &digests(&["3", "4"]), &json!({})).says(3, &["0 removed, 2 changed", unclear]);
    // One named set is told apart by its name.
    fixed(&json!([{"name": "a"}]), &json!([{"name": "b"}]), &json!({})).says(1, &["- removed  a", "+ added    b"]);
    fixed(&json!([{"k": "1", "v": "1"}]), &json!([{"k": "1", "v": "2"}]), &json!({"identity": ["k"]}))
        .says(0, &["~ changed  1: v"]);
}
