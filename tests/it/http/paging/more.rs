//! Signs that an answer is only a part of the list.

use super::*;

const INVALID: &str = "backend_output_invalid";

fn items() -> Value {
    json!({"parameters": "body.items"})
}

/// The reply to one page with `headers` and `body`.
async fn one(headers: &'static str, body: Value, more: Value) -> Reply {
    let upstream = Upstream::start(move |_| page(headers, &body)).await;
    ask(&upstream, more).await
}

#[tokio::test]
async fn an_unread_next_page_makes_the_list_unknown() {
    let by_number = json!({"paging": {"next": "size(body) < 9 ? null : page + 1", "parameter": "page"}});
    let by_link = json!({"paging": {"link": true}});
    for (headers, says) in [
        ("X-Next-Page: 2", "`X-Next-Page`"),
        ("Link: <?page=1>; rel=\"first\"\r\nX-Next-Page: 2", "`X-Next-Page`"),
        ("Link: <?page=2>; rel*=UTF-8''next", "its `Link` cannot be read"),
        ("Link: <?page=2>; rel=\"next", "its `Link` cannot be read"),
        ("Link: <?page=1>; title=\"unclosed, <?page=2>; rel=\"next\"", "its `Link` cannot be read"),
        ("Link: ?page=2; rel=next", "its `Link` cannot be read"),
    ] {
        for paging in [json!({}), by_link.clone(), by_number.clone()] {
            for list in [json!([]), json!([{"n": "1"}])] {
                refused(&one(headers, list, paging.clone()).await, 502, INVALID, says);
            }
        }
    }
    for paging in [json!({}), by_number] {
        refused(&one("Link: <?page=2>; rel='next'", json!([]), paging).await, 502, INVALID, "`Link` with rel=\"next\"");
    }
    // Links in another documented form are followed if the gateway can read them.
    let quoted = Upstream::start(|request| {
        let more = number(request) == 1;
        page(
            if more { "Link: <?page=2>; rel='next'" } else { "X-Next-Page: " },
            &json!([{"n": number(request).to_string()}]),
        )
    });
    assert_eq!(ask(&quoted.await, by_link).await.sets(), r#"[{"n":"1"},{"n":"2"}]"#);
    let numbered = Upstream::start(|request| {
        let more = number(request) == 1;
        page(if more { "X-Next-Page: 2" } else { "X-Next-Page: " }, &json!([{"n": number(request).to_string()}]))
    });
    let by_header = json!({"paging": {"next": "headers['x-next-page']", "parameter": "page"}});
    assert_eq!(ask(&numbered.await, by_header).await.sets(), r#"[{"n":"1"},{"n":"2"}]"#);
}

#[tokio::test]
async fn a_kubernetes_list_with_more_items_is_unknown() {
    let list = |metadata: Value| json!({"kind": "NamespaceList", "metadata": metadata, "items": []});
    let next = "has(body.metadata.continue) ? body.metadata.continue : ''";
    let paged = json!({"paging": {"next": next, "parameter": "continue"}, "parameters": "body.items"});
    for more in [items(), paged.clone()] {
        let left = list(json!({"resourceVersion": "7", "remainingItemCount": 7}));
        refused(&one("", left, more.clone()).await, 502, INVALID, "`metadata.remainingItemCount`");
        for whole in [json!({"resourceVersion": "7"}), json!({"continue": "", "remainingItemCount": 0}), json!(null)] {
            let more = if whole.is_null() { items() } else { more.clone() };
            assert_eq!(one("", list(whole), more).await.sets(), "[]");
        }
    }
    let goes_on = list(json!({"continue": "eyJ2", "remainingItemCount": 7}));
    refused(&one("", goes_on, items()).await, 502, INVALID, "`metadata.continue`");
    let incomplete = json!({"total_count": 0, "incomplete_results": true, "items": []});
    refused(&one("", incomplete, items()).await, 502, INVALID, "`incomplete_results`");
}

/// Only totals that an API documents as the total of the whole list count.
#[tokio::test]
async fn a_documented_total_that_differs_makes_the_list_unknown() {
    let (gitlab, github) = ("X-Per-Page: 20\r\nX-Next-Page: \r\nX-Total: 7", "X-GitHub-Request-Id: 8C9A:1");
    let of = |count: usize| Value::Array((0..count).map(|n| json!({"n": n.to_string()})).collect());
    for (count, is_whole) in [(0, false), (6, false), (7, true), (8, false)] {
        let runs = |key: &str| json!({"total_count": 7, key: of(count), "size": 100});
        for reply in [
            one(gitlab, of(count), json!({})).await,
            // Items that the expression drops count too.
            one(gitlab, of(count), json!({"parameters": "body.filter(i, i.n == 'x')"})).await,
            one(github, runs("workflow_runs"), json!({"parameters": "body.workflow_runs"})).await,
        ] {
            if is_whole {
                assert_eq!(reply.status, 200, "{count}: {}", reply.text());
            } else {
                refused(&reply, 502, INVALID, "not whole");
            }
        }
        // Other totals are ignored: their meaning is unknown.
        for (headers, body, more) in [
            ("X-Total: 7", of(count), json!({})),
            ("", runs("items"), items()),
            ("", json!({"size": 7, "total": 7, "items": of(count)}), items()),
        ] {
            assert_eq!(one(headers, body, more).await.status, 200);
        }
    }
    refused(&one("X-Per-Page: 20\r\nX-Total: many", json!([]), json!({})).await, 502, INVALID, "is not a number");
    // Across all pages.
    for (second, says) in [(4, None), (5, Some("changed while its pages were read"))] {
        let upstream = Upstream::start(move |request| {
            let n = number(request);
            let (link, total) = if n == 1 { ("Link: <?page=2>; rel=next\r\n", 4) } else { ("", second) };
            page(
                &format!("{link}X-Per-Page: 2\r\nX-Total: {total}"),
                &json!([{"n": format!("{n}a")}, {"n": format!("{n}b")}]),
            )
        })
        .await;
        let reply = ask(&upstream, json!({"paging": {"link": true}})).await;
        match says {
            None => assert_eq!(reply.sets(), r#"[{"n":"1a"},{"n":"1b"},{"n":"2a"},{"n":"2b"}]"#),
            Some(says) => {
                refused(&reply, 502, INVALID, says);
            }
        }
    }
}
