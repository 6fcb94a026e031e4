//! What the views show, and that nothing in them is more than text.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{ADMIN_TOKEN, Person, gateway, hold};

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
            "2 of 3 parameter sets would be gone, more than `guard.maxShrink: 30%`",
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
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        assert!(html.contains(&format!("Page {page} of 10")), "{page}");
        seen += html.matches("<article").count();
    }
    assert_eq!(seen, 500);
    for (page, shown) in [("0", 1), ("11", 10), ("x", 1), ("99999999999999999999", 1)] {
        let html = person.get(&format!("/held?page={page}")).await.text();
        assert!(html.contains(&format!("Page {shown} of 10")), "{page}");
    }
}
