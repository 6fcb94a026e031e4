//! Lists in pages: all pages are read, or the answer is unknown.

mod more;
mod shapes;

use serde_json::{Value, json};

use super::serve;
use crate::support::{
    Reply, TestApp,
    upstream::{Request, Step, Upstream, refused, response},
};

/// The page number of a request, from 1.
fn number(request: &Request) -> usize {
    let (_, query) = request.target.split_once('?').unwrap_or_default();
    query.split('&').find_map(|pair| pair.strip_prefix("page=")).map_or(1, |page| page.parse().unwrap())
}

fn page(headers: &str, body: &Value) -> Vec<Step> {
    vec![Step::Send(response(200, format!("Content-Type: application/json\r\n{headers}").trim_end(), body.to_string()))]
}

/// Three pages of two items, linked as GitHub links them.
fn github(request: &Request) -> Vec<Step> {
    let n = number(request);
    let host = request.header("host").unwrap();
    let link = if n < 3 {
        format!(
            "Link: <http://{host}/list?x=1&page={}>; rel=\"next\", <http://{host}/list?page=3>; rel=\"last\"",
            n + 1
        )
    } else {
        format!("Link: <http://{host}/list?page=1>; rel=\"first\"")
    };
    page(&link, &json!([{"n": format!("{n}a")}, {"n": format!("{n}b")}]))
}

const ALL: &str = r#"[{"n":"1a"},{"n":"1b"},{"n":"2a"},{"n":"2b"},{"n":"3a"},{"n":"3b"}]"#;

async fn ask(upstream: &Upstream, more: Value) -> Reply {
    let app: TestApp = serve(upstream, "/list?x=1", more).await;
    app.ask_afresh("h", json!({})).await
}

#[tokio::test]
async fn pages_are_joined_for_each_paging_method() {
    let upstream = Upstream::start(github).await;
    let token = json!({"X-Token": "{{ applicationSet }}"});
    assert_eq!(ask(&upstream, json!({"paging": {"link": true}, "headers": token})).await.sets(), ALL);
    let asked: Vec<String> = upstream.requests().iter().map(|request| request.target.clone()).collect();
    assert_eq!(asked, ["/list?x=1", "/list?x=1&page=2", "/list?x=1&page=3"]);
    assert!(upstream.requests().iter().all(|request| request.header("x-token") == Some("test")));

    // By page number, as long as pages are full.
    let upstream = Upstream::start(|request| {
        let n = number(request);
        let items = [json!({"n": format!("{n}a")}), json!({"n": format!("{n}b")})];
        page("", &json!(items[..if n > 3 { 0 } else { 2 }]))
    })
    .await;
    let by_number = json!({"paging": {"next": "size(body) < 2 ? null : page + 1", "parameter": "page"}});
    assert_eq!(ask(&upstream, by_number).await.sets(), ALL);
    assert_eq!(upstream.requests().last().unwrap().target, "/list?x=1&page=4");

    // A page with fewer items than requested is not the last page if it has a link to the next.
    let upstream = Upstream::start(github).await;
    let capped = json!({"paging": {"next": "size(body) < 100 ? null : page + 1", "parameter": "page"}});
    refused(
        &ask(&upstream, capped).await,
        502,
        "backend_output_invalid",
        "paging.next: it says that this is the last page",
    );

    // By a cursor in the body, and by a URL in it.
    for (next, parameter) in [("body.next", Some("page")), ("body.url", None)] {
        let upstream = Upstream::start(|request| {
            let n = number(request);
            let next = (n < 3).then_some(n + 1);
            let url = next.map(|next| format!("?page={next}")).unwrap_or_default();
            page("", &json!({"items": [{"n": format!("{n}a")}, {"n": format!("{n}b")}], "next": next, "url": url}))
        })
        .await;
        let mut paging = json!({"next": next});
        if let Some(parameter) = parameter {
            paging["parameter"] = json!(parameter);
        }
        let reply = ask(&upstream, json!({"paging": paging, "parameters": "body.items"})).await;
        assert_eq!(reply.sets(), ALL, "{next}");
    }
    // A single page, and an empty page.
    let upstream = Upstream::start(|_| page("", &json!([]))).await;
    assert_eq!(ask(&upstream, json!({"paging": {"link": true}})).await.sets(), "[]");
}

/// However the links are spread over header lines, with and without links in a 304.
#[tokio::test]
async fn an_unchanged_page_leads_to_the_next_one() {
    for repeats in [true, false] {
        let upstream = Upstream::start(move |request| {
            let n = number(request);
            let tag = format!("ETag: \"{n}\"");
            let links = "Link: <?x=1&page=2>; rel=\"next\"\r\nLink: <?page=2>; rel=\"last\"";
            let links = if n == 1 { links } else { "Link: <?page=1>; rel=\"first\"" };
            if request.header("if-none-match").is_some() {
                let headers = if repeats { format!("{tag}\r\n{links}") } else { tag };
                return vec![Step::Send(format!("HTTP/1.1 304 X\r\nConnection: close\r\n{headers}\r\n\r\n").into())];
            }
            page(&format!("{tag}\r\n{links}"), &json!([{"n": n.to_string()}]))
        })
        .await;
        let app = serve(&upstream, "/list?x=1", json!({"paging": {"link": true}})).await;
        for _ in 0..3 {
            assert_eq!(app.ask_afresh("h", json!({})).await.sets(), r#"[{"n":"1"},{"n":"2"}]"#);
        }
        let is_conditional = |request: &Request| request.header("if-none-match").is_some();
        assert_eq!(upstream.requests().iter().filter(|request| is_conditional(request)).count(), 4);
    }
}

#[tokio::test]
async fn a_missing_page_makes_the_list_unknown() {
    let link = |target: &'static str| {
        move |_: &Request| page(&format!("Link: <{target}>; rel=\"next\""), &json!([{"n": "1"}]))
    };
    let many = |request: &Request| {
        page(&format!("Link: <?page={}>; rel=next", number(request) + 1), &json!([{"n": number(request).to_string()}]))
    };
    let second = |status: u16, body: &'static str| {
        move |request: &Request| match number(request) {
            1 => github(request),
            _ => vec![Step::Send(response(status, "Content-Type: application/json", body))],
        }
    };
    let by_link = json!({"paging": {"link": true, "maxPages": 5}});
    let cases: Vec<(Upstream, Value, &str, &str)> = vec![
        (Upstream::start(link("?x=1")).await, by_link.clone(), "backend_output_invalid", "the pages go in a circle"),
        (
            Upstream::start(link("http://127.0.0.2:1/")).await,
            by_link.clone(),
            "backend_output_invalid",
            "the next page is elsewhere",
        ),
        (Upstream::start(link("https://h/")).await, by_link.clone(), "backend_output_invalid", "elsewhere (https://h)"),
        (Upstream::start(many).await, by_link.clone(), "backend_output_invalid", "page 5: GET"),
        (Upstream::start(second(500, "[]")).await, by_link.clone(), "backend_failed", "page 2: "),
        (Upstream::start(second(404, "{}")).await, by_link.clone(), "backend_output_invalid", "page 2: "),
        (Upstream::start(second(200, "{}")).await, by_link.clone(), "backend_output_invalid", "page 2: "),
        (Upstream::start(second(200, "[{\"n\":")).await, by_link.clone(), "backend_output_invalid", "page 2: "),
        (
            Upstream::start(github).await,
            json!({}),
            "backend_output_invalid",
            "`paging: { link: true }` reads all of them",
        ),
        (
            Upstream::start(github).await,
            json!({"paging": {"next": "body.next"}}),
            "backend_output_invalid",
            "paging.next",
        ),
        (
            Upstream::start(github).await,
            json!({"paging": {"next": "[1]"}}),
            "backend_output_invalid",
            "paging.next: it is a list",
        ),
    ];
    for (upstream, more, code, says) in cases {
        refused(&ask(&upstream, more.clone()).await, 502, code, says);
    }
}

#[test]
fn paging_mistakes_are_reported_at_startup() {
    let folder = tempfile::tempdir().unwrap();
    for (paging, says) in [
        (json!({}), "http.paging: set exactly one of `link` and `next`"),
        (json!({"link": true, "next": "body.next"}), "http.paging: set exactly one of `link` and `next`"),
        (json!({"link": true, "parameter": "page"}), "paging.parameter: there is no `next`"),
        (json!({"link": true, "maxPages": 0}), "paging.maxPages: with 0"),
        (json!({"next": "body."}), "paging.next: "),
    ] {
        let routes = json!([{"name": "s", "backend": {"http": {"url": "http://h/", "paging": paging}}}]);
        let config = format!("{}routes: {routes}\n", TestApp::auth());
        let clock = std::sync::Arc::new(domain::clock::SystemClock);
        let lines = crate::support::app::build(folder.path(), &config, clock).err().expect("a report").lines();
        assert!(lines.iter().any(|line| line.contains(says)), "{says}: {lines:?}");
    }
}
