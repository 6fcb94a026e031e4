//! What the views show, and that nothing in them is more than text.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use domain::lifecycle::Phase;
use futures_util::future::join_all;
use regex::Regex;
use serde_json::json;

use super::{ADMIN_TOKEN, Person, TOKEN, VIEWER_TOKEN, gateway, hold, scene::Scene};
use crate::support::{TestApp, upstream::Upstream};

/// Texts that would do harm as HTML, as a URL, or to the eye.
const HOSTILE: &str =
    "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;{{x}}\u{202e}txt.exe\u{200b}\u{0}\n";

#[tokio::test]
async fn a_held_answer_says_what_would_be_deleted() {
    let app = gateway().await;
    let id = hold(&app, json!({"branch": "main"})).await;
    let person = Person::with(&app, ADMIN_TOKEN).await;
    app.clock.advance(Duration::from_mins(12));
    for path in ["/held".to_owned(), format!("/held/{id}")] {
        let html = person.get(&path).await.text();
        for text in [
            "2 of 3 parameter sets would be gone, more than </bdi><code><bdi>guard.maxShrink: 30%</bdi></code>",
            "<span class=\"before\">3</span>",
            "1 parameter set<",
            "<bdi>b</bdi>",
            "<bdi>c</bdi>",
            "12 min ago",
            "0 of 3 further runs, 5 min apart",
            "<bdi>test</bdi>",
            "<bdi>main</bdi>",
            "accept the loss of 2",
        ] {
            assert!(html.contains(text), "{path} lacks {text}: {html}");
        }
    }
    assert!(person.get(&format!("/held/{id}")).await.text().contains("<li class=\"stays\">"), "what stays is named");
    assert!(person.get("/").await.text().contains("<span class=\"badge\">1</span>"));
}

#[tokio::test]
async fn a_held_answer_in_whose_place_nothing_is_served_says_so() {
    let app = gateway().await;
    app.ask("few", json!({})).await;
    let person = Person::with(&app, ADMIN_TOKEN).await;
    let html = person.get("/held").await.text();
    for text in
        ["so Argo CD gets an error meanwhile", "Nothing is known that would be gone", "never accept this answer"]
    {
        assert!(html.contains(text), "{text}: {html}");
    }
    assert!(!html.contains("Argo CD still gets the last good answers"), "{html}");
    let html = person.get("/").await.text();
    assert!(html.contains("An answer of <bdi>few</bdi> is held") && !html.contains("would lose"), "{html}");

    // A last good answer is served for as long as `staleIfError` allows.
    let app = gateway().await;
    hold(&app, json!({})).await;
    let person = Person::with(&app, ADMIN_TOKEN).await;
    let meanwhile = "so Argo CD gets an error meanwhile";
    let html = person.get("/held").await.text();
    assert!(html.contains("Argo CD still gets the last good answers") && !html.contains(meanwhile), "{html}");
    assert!(person.get("/").await.text().contains("<bdi>s</bdi> would lose Applications"));
    app.clock.advance(Duration::from_hours(24));
    // Whoever signed in a day ago signs in again.
    let person = Person::with(&app, ADMIN_TOKEN).await;
    let html = person.get("/held").await.text();
    assert!(html.contains(meanwhile) && !html.contains("Argo CD still gets the last good answers"), "{html}");
}

#[tokio::test]
async fn hostile_names_are_only_text() {
    let app = gateway().await;
    app.ask("few", json!({HOSTILE: HOSTILE, "branch": HOSTILE})).await;
    let person = Person::with(&app, ADMIN_TOKEN).await;
    let html = person.get("/held").await.text();
    for raw in ["<script>alert", "<img", "\u{202e}", "\u{200b}", "\u{0}", "'><"] {
        assert!(!html.contains(raw), "{raw:?}: {html}");
    }
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;"), "{html}");
    for shown in ["\\u{202e}", "\\u{200b}", "\\u{0}", "\\u{a}"] {
        assert!(html.contains(shown), "{shown}: {html}");
    }
    // Neither a path nor a query gets into a view.
    for path in ["/held/%3Cscript%3Ealert(1)", "/login?to=/%22%3E%3Cscript%3Ealert(1)", "/held?page=%3Cscript%3Ealert"]
    {
        let html = person.get(path).await.text();
        assert!(!html.contains("<script>alert") && !html.contains("%3Cscript%3Ealert(1)"), "{path}: {html}");
    }
}

/// The views of `person` have no markup of `HOSTILE`.
async fn is_only_text(person: &Person<'_>, paths: &[String]) {
    for path in paths {
        let html = person.get(path).await.text();
        is_escaped(&html, path);
    }
}

fn is_escaped(html: &str, of: &str) {
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{of} shows it: {html:?}");
    // A field of a form has the very text, so that it can be sent.
    let fields = Regex::new("(?s) value=\"[^\"]*\"|<textarea.*?</textarea>").unwrap();
    let rest = fields.replace_all(html, "");
    for raw in ["\u{202e}", "\u{200b}", "\u{0}"] {
        assert!(!rest.contains(raw), "{of}: {raw:?}: {rest:?}");
    }
    for raw in ["<script>alert", "<img", "'><"] {
        assert!(!html.contains(raw), "{of}: {raw:?}: {html:?}");
    }
}

#[tokio::test]
async fn what_scripts_and_sources_say_is_only_text() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("hostile"), HOSTILE).unwrap();
    super::print(folder.path(), &["a", HOSTILE]);
    let source = Upstream::start(|request| request.answer(503, "Retry-After: 90", HOSTILE)).await;
    let command = |text: &str| json!({"command": ["sh", "-c", text], "allow": {"read": ["."]}});
    let routes = json!([
        {"name": "bad", "backend": {"script": command("cat hostile >&2; exit 1")}},
        {"name": "good", "backend": {"script": command("cat hostile >&2; cat answer")}},
        {"name": "api", "backend": {"http": {"url": format!("http://{}/", source.address), "parameters": "body"}}},
    ]);
    let app = TestApp::start_in(folder, &format!("{}routes: {routes}\n", super::auth())).await;
    let key = |name: &'static str| {
        let app = &app;
        async move {
            app.ask(name, json!({})).await;
            let answers = app.operate(&format!("/admin/answers?route={name}"), None).await.json();
            format!("/explain?key={}", answers["answers"][0]["key"].as_str().unwrap())
        }
    };
    let paths = [key("bad").await, key("good").await, key("api").await];
    let person = Person::with(&app, ADMIN_TOKEN).await;
    is_only_text(&person, &paths).await;
    is_only_text(&person, &["/".to_owned(), "/routes".to_owned()]).await;
    let token = person.field("/explain", "formToken").await;
    for route in ["bad", "good", "api"] {
        let form = [("formToken", &*token), ("route", route), ("applicationSet", HOSTILE), ("parameters", "x=1")];
        let html = person.post("/explain", &form).await.text();
        assert!(html.contains("What Argo CD gets"), "{html}");
        is_escaped(&html, route);
    }
    let form = [("formToken", &*token), ("route", "good"), ("parameters", "")];
    let html = person.post("/explain", &form).await.text();
    assert!(html.contains("The answer may depend on the ApplicationSet, and none was named."), "{html}");
    // What was written comes back with the reason why it cannot be asked.
    let form = [("formToken", &*token), ("route", HOSTILE), ("applicationSet", HOSTILE), ("parameters", HOSTILE)];
    is_escaped(&person.post("/explain", &form).await.text(), "a form that cannot be asked");

    let broken = format!("{}routes: [{}]\n", super::auth(), json!({ HOSTILE: HOSTILE }));
    let base = domain::file::base_dir::BaseDir::new(app.folder.path());
    app.app.reload(appset_gateway::config::Loaded::parse("t.yaml", broken, base)).unwrap_err();
    is_only_text(&person, &["/".to_owned(), "/configuration".to_owned()]).await;
}

#[tokio::test]
async fn what_a_hook_says_is_only_text() {
    let scene = Scene::good_day().await;
    assert_eq!(scene.tell("a secret of the sender", HOSTILE).await, 202);
    scene.app.settle().await;
    let person = Person::with(&scene.app, VIEWER_TOKEN).await;
    is_only_text(&person, &["/events".to_owned()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_answers_are_paged() {
    let app = gateway().await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let ask = async |number: u32| {
        let url = format!("http://{}/all/api/v1/getparams.execute", app.address);
        let body = json!({"applicationSetName": "test", "input": {"parameters": {"number": number}}}).to_string();
        let reply = client.post(url).bearer_auth(TOKEN).body(body).send().await.unwrap();
        assert_eq!(reply.status(), 200);
        reply.bytes().await.unwrap();
    };
    let ask = &ask;
    let each = |first: u32| async move {
        for number in (first..10_000).step_by(8) {
            ask(number).await;
        }
    };
    join_all((0..8).map(each)).await;
    let person = Person::with(&app, ADMIN_TOKEN).await;
    for (path, says) in
        [("/explain?page=200", "Page 200 of 200"), ("/routes", "<strong>10000</strong>"), ("/", "All is well")]
    {
        let began = Instant::now();
        let html = person.get(path).await.text();
        assert!(html.contains(says), "{path}: {html}");
        assert!(began.elapsed() < Duration::from_secs(30) && html.len() < 200_000, "{path}: {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_gateway_in_trouble_says_so() {
    let app = gateway().await;
    let person = Person::with(&app, ADMIN_TOKEN).await;
    app.app.lifecycle.enter(Phase::Draining);
    assert!(person.get("/").await.text().contains("This gateway is about to end"));

    let away = format!("{}cache: {{ shared: {{ url: \"redis://127.0.0.1:1\" }} }}\n", super::auth());
    let app = super::start(&away).await;
    let person = Person::with(&app, ADMIN_TOKEN).await;
    let following = Arc::clone(&app.app);
    let following = tokio::spawn(async move { following.follow_store().await });
    let until = Instant::now() + Duration::from_secs(20);
    while !person.get("/").await.text().contains("The shared store does not answer") {
        assert!(Instant::now() < until, "{}", person.get("/").await.text());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    following.abort();
    // What the source says now could not be recorded, so Argo CD would not get it.
    let explained = app.operate("/admin/explain", Some(json!({"route": "s", "applicationSet": "test"}))).await.json();
    assert_eq!((&explained["outcome"], &explained["because"]["code"]), (&json!("present"), &json!("unavailable")));
    assert_eq!(explained["answer"]["status"], app.ask("s", json!({})).await.status, "{explained:#}");
    for path in ["/held", "/explain", "/routes", "/sources", "/events", "/configuration"] {
        assert_eq!(person.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn five_hundred_held_answers_are_paged() {
    let app = gateway().await;
    for number in 0..500 {
        app.ask("few", json!({ "number": number })).await;
    }
    let person = Person::with(&app, ADMIN_TOKEN).await;
    let mut seen = 0;
    for page in 1..=10 {
        let began = Instant::now();
        let html = person.get(&format!("/held?page={page}")).await.text();
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        assert!(html.contains(&format!("Page {page} of 10")), "{page}");
        seen += html.matches("<article").count();
    }
    assert_eq!(seen, 500);
    for (page, shown) in [("0", 1), ("11", 10), ("x", 1), ("99999999999999999999", 1)] {
        let html = person.get(&format!("/held?page={page}")).await.text();
        assert!(html.contains(&format!("Page {shown} of 10")), "{page}");
    }
}

#[tokio::test]
async fn the_elements_of_an_answer_are_rows() {
    let list = json!({"fixed": {"parameters": [{"number": 12}, {"number": 13}]}});
    let each = json!({"key": ["number"], "fixed": {"parameters": [{"digest": "x"}]}});
    let route = json!({"name": "previews", "backend": {"pipeline": [list, {"each": each}]},
        "output": {"number": "{{ item.number }}", "digest": "{{ digest }}"}});
    let app = TestApp::start(&format!("{}routes: {}\n", super::auth(), json!([route]))).await;
    app.ask("previews", json!({})).await;
    let person = Person::with(&app, ADMIN_TOKEN).await;
    let answers = app.operate("/admin/answers", None).await.json();
    let html = person.get(&format!("/explain?key={}", answers["answers"][0]["key"].as_str().unwrap())).await.text();
    for text in ["<h2 id=\"elements\">Elements</h2>", "2 present", "<bdi>12</bdi>", "<bdi>13</bdi>"] {
        assert!(html.contains(text), "{text} is not in {html}");
    }
    let html = person.get("/routes").await.text();
    assert!(html.contains("elements: 2 present"), "{html}");
}
