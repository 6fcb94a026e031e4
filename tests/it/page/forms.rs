//! The forms that decide: who may send them, and from where.

use serde_json::json;

use super::{ADMIN_TOKEN, Person, VIEWER_TOKEN, gateway, hold, print};

/// The fields of the form on the view of `id`.
async fn fields(person: &Person<'_>, id: &str) -> (String, String) {
    let path = format!("/held/{id}");
    (person.field(&path, "formToken").await, person.field(&path, "fingerprint").await)
}

#[tokio::test]
async fn an_operator_releases_a_held_answer() {
    let app = gateway().await;
    let id = hold(&app, json!({"branch": "main"})).await;
    let person = Person::with(&app, ADMIN_TOKEN).await;
    let (token, fingerprint) = fields(&person, &id).await;
    let (reject, release) = (format!("/held/{id}/reject"), format!("/held/{id}/release"));
    let good = [("formToken", &*token), ("fingerprint", &*fingerprint), ("reason", "they are closed")];
    let rejected = person.post(&reject, &good).await;
    assert!(rejected.status == 200 && rejected.text().contains("<h1>Rejected</h1>"), "{}", rejected.text());
    assert!(person.get("/held").await.text().contains("rejected"));
    let released = person.post(&release, &good).await;
    assert!(released.status == 200 && released.text().contains("<h1>Released</h1>"), "{}", released.text());
    assert!(
        released.text().contains("accepted, because the source still says so; Argo CD will delete 2: b, c"),
        "{}",
        released.text()
    );
    assert_eq!(app.ask("s", json!({"branch": "main"})).await.sets(), r#"[{"name":"a"}]"#);
    assert!(person.get("/held").await.text().contains("Nothing is held."));
    let again = person.post(&release, &good).await;
    assert!(again.status == 404 && again.text().contains("nothing is held under this id"), "{}", again.text());
    assert_eq!(person.get(&format!("/held/{id}")).await.status, 404);
}

#[tokio::test]
async fn a_forged_or_stale_form_decides_nothing() {
    let app = gateway().await;
    let id = hold(&app, json!({})).await;
    let person = Person::with(&app, ADMIN_TOKEN).await;
    let (token, fingerprint) = fields(&person, &id).await;
    let of_other = Person::with(&app, ADMIN_TOKEN).await.field("/", "formToken").await;
    let bearer = format!("Authorization: Bearer {ADMIN_TOKEN}\r\n");
    let of_bearer = Person::at(&app).sending(&bearer).field(&format!("/held/{id}"), "formToken").await;
    let path = format!("/held/{id}/release");
    let reason = ("reason", "x");
    let print_of = ("fingerprint", fingerprint.as_str());
    for (form, status, says) in [
        (vec![print_of, reason], 403, "the form is not of this session"),
        (vec![("formToken", ""), print_of, reason], 403, "the form is not of this session"),
        (vec![("formToken", &*of_other), print_of, reason], 403, "the form is not of this session"),
        (vec![("formToken", &*of_bearer), print_of, reason], 403, "the form is not of this session"),
        (vec![("formToken", &*token), print_of], 400, "a decision needs a reason"),
        (vec![("formToken", &*token), print_of, ("reason", " \t ")], 400, "a decision needs a reason"),
        (vec![("formToken", &*token), reason], 400, "does not say which answer"),
        (vec![("formToken", &*token), ("fingerprint", "0123456789abcdef"), reason], 409, "another answer is held"),
        (vec![("formToken", &*token), print_of, reason, ("reason", "y")], 400, "a field twice"),
    ] {
        let reply = person.post(&path, &form).await;
        assert_eq!(reply.status, status, "{form:?}: {}", reply.text());
        assert!(reply.text().contains(says), "{form:?}: {}", reply.text());
    }
    let good = [("formToken", &*token), print_of, reason];
    for headers in [
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Origin: http://localhost:1\r\n",
        "Origin: null\r\n",
    ] {
        let reply = person.sending(headers).post(&path, &good).await;
        assert!(reply.status == 403 && reply.text().contains("a page of another site sent this"), "{}", reply.text());
        let reply = person.sending(headers).post("/logout", &good[..1]).await;
        assert_eq!(reply.status, 403, "{headers}");
        let reply = Person::at(&app).sending(headers).sign_in(ADMIN_TOKEN).await;
        assert_eq!((reply.status, reply.header("set-cookie")), (403, None), "{headers}");
    }
    assert_eq!(Person::at(&app).post(&path, &good).await.status, 303, "without a session");
    let held = app.operate("/admin/held", None).await.json();
    assert_eq!(held["held"][0].get("decision"), None, "nothing was decided");

    // A browser says where its form comes from.
    let headers = "Sec-Fetch-Site: same-origin\r\nOrigin: null\r\n";
    assert_eq!(person.sending(headers).post(&path, &good).await.status, 200);
}

#[tokio::test]
async fn behind_a_proxy_the_forms_have_a_token_too() {
    let app = gateway().await;
    let id = hold(&app, json!({})).await;
    let by_proxy = Person::at(&app).sending(&format!("Authorization: Bearer {ADMIN_TOKEN}\r\n"));
    let (token, fingerprint) = fields(&by_proxy, &id).await;
    let path = format!("/held/{id}/reject");
    let rest = [("fingerprint", &*fingerprint), ("reason", "x")];
    assert_eq!(by_proxy.post(&path, &rest).await.status, 403);
    assert_eq!(by_proxy.post(&path, &[&rest[..], &[("formToken", &*token)]].concat()).await.status, 200);
}

#[tokio::test]
async fn a_viewer_sees_no_form_and_decides_nothing() {
    let app = gateway().await;
    let id = hold(&app, json!({})).await;
    let viewer = Person::with(&app, VIEWER_TOKEN).await;
    let page = viewer.get("/held").await.text();
    assert!(
        page.contains("sign in with a token that has <code>role: admin</code>") && !page.contains("class=\"decide\"")
    );
    let fingerprint = app.operate("/admin/held", None).await.json()["held"][0]["fingerprint"].clone();
    let token = viewer.field("/held", "formToken").await;
    for what in ["release", "reject"] {
        let form = [("formToken", &*token), ("fingerprint", fingerprint.as_str().unwrap()), ("reason", "x")];
        let reply = viewer.post(&format!("/held/{id}/{what}"), &form).await;
        assert!(
            reply.status == 403 && reply.text().contains("has the role </bdi><code><bdi>viewer</bdi></code>"),
            "{}",
            reply.text()
        );
    }
    assert_eq!(app.operate("/admin/held", None).await.json()["held"][0].get("decision"), None);
}

#[tokio::test]
async fn a_body_that_is_no_form_is_refused() {
    let app = gateway().await;
    let person = Person::with(&app, ADMIN_TOKEN).await;
    let send = async |kind: &str, body: &str| {
        let head = person.head("POST", "/logout");
        let length = body.len();
        person.send(&format!("{head}Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}")).await
    };
    assert_eq!(send("application/json", "{}").await.status, 415);
    assert_eq!(send("text/plain", "formToken=x").await.status, 415);
    assert_eq!(send("application/x-www-form-urlencoded; charset=utf-8", "\u{fffd}=%ff&&==").await.status, 403);
    assert_eq!(send("application/x-www-form-urlencoded", &"x".repeat(16 * 1024 + 1)).await.status, 413);
    assert_eq!(person.get("/").await.status, 200, "the session continues");
}

#[tokio::test]
async fn a_source_that_says_something_else_is_named_in_the_result() {
    let app = gateway().await;
    let id = hold(&app, json!({})).await;
    let person = Person::with(&app, ADMIN_TOKEN).await;
    let (token, fingerprint) = fields(&person, &id).await;
    print(app.folder.path(), &[]);
    let form = [("formToken", &*token), ("fingerprint", &*fingerprint), ("reason", "x")];
    let reply = person.post(&format!("/held/{id}/release"), &form).await;
    assert!(reply.text().contains("<h1>Released, and waiting</h1>"), "{}", reply.text());
    assert!(reply.text().contains("the source says something else by now"), "{}", reply.text());
}
