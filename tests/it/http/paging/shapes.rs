//! Pages in the shapes of well-known APIs.

use super::*;

/// The query parameter `name` of a request, still encoded.
fn parameter<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    let (_, query) = request.target.split_once('?')?;
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

fn targets(upstream: &Upstream) -> Vec<String> {
    upstream.requests().into_iter().map(|request| request.target).collect()
}

/// The gateway's reply when its backend requests `target` from `upstream`.
async fn ask_at(upstream: &Upstream, target: &str, more: Value) -> Reply {
    serve(upstream, target, more).await.ask_afresh("h", json!({})).await
}

/// Keyset pages: each link repeats the query with `id_after`. The last page is empty and has no link.
/// <https://docs.gitlab.com/api/rest/#keyset-based-pagination>
#[tokio::test]
async fn gitlabs_keyset_pages_end_with_an_empty_one() {
    const PROJECTS: [(u32, &str); 5] =
        [(7, "group/a"), (42, "group/b"), (43, "group/sub/c"), (1001, "group/d"), (1002, "group/e")];
    let upstream = Upstream::start(|request| {
        let after: u32 = parameter(request, "id_after").map_or(0, |id| id.parse().unwrap());
        let found: Vec<_> = PROJECTS.iter().filter(|(id, _)| *id > after).take(2).collect();
        let items: Vec<Value> = found
            .iter()
            .map(|(id, path)| json!({"id": id, "description": null, "path_with_namespace": path, "archived": false}))
            .collect();
        let link = found.last().map(|(id, _)| {
            let host = request.header("host").unwrap();
            format!(
                "Link: <http://{host}/api/v4/groups/9/projects?archived=false&id_after={id}&imported=false&include_subgroups=true\
                 &order_by=id&owned=false&page=1&pagination=keyset&per_page=2&simple=false&sort=asc&starred=false>; rel=\"next\"\r\n"
            )
        });
        let more = "X-Per-Page: 2\r\nX-Runtime: 0.123\r\nETag: W/\"0b5e\"\r\nVary: Accept, Origin\r\nCache-Control: max-age=0, private, must-revalidate";
        page(&(link.unwrap_or_default() + more), &json!(items))
    })
    .await;
    let more = json!({
        "paging": {"link": true}, "parameters": "body.filter(p, !p.archived).map(p, {'path': p.path_with_namespace})",
    });
    let target = "/api/v4/groups/9/projects?pagination=keyset&per_page=2&order_by=id&sort=asc&include_subgroups=true";
    let reply = ask_at(&upstream, target, more).await;
    let all: Vec<Value> = PROJECTS.iter().map(|(_, path)| json!({"path": path})).collect();
    assert_eq!(reply.sets(), json!(all).to_string());
    let after: Vec<_> =
        upstream.requests().iter().map(|request| parameter(request, "id_after").map(str::to_owned)).collect();
    assert_eq!(after, [None, Some("42".to_owned()), Some("1001".to_owned()), Some("1002".to_owned())]);
}

/// A page of a `NamespaceList` of 5 items, as `request` asks for it. With a selector the remaining items are not counted.
fn namespaces(request: &Request) -> Value {
    let names = ["argocd", "default", "kube-system", "shop", "wiki"];
    let start = start(request);
    let end = names.len().min(start + 2);
    let items: Vec<Value> = names[start..end]
        .iter()
        .map(|name| json!({"metadata": {"name": name, "resourceVersion": "7"}, "status": {"phase": "Active"}}))
        .collect();
    let mut metadata = json!({"resourceVersion": "10245"});
    if end < names.len() {
        metadata["continue"] = json!(format!("eyJ2IjoibWV0YS5rOHMuaW8v/{end}+=="));
        if parameter(request, "labelSelector").is_none() {
            metadata["remainingItemCount"] = json!(names.len() - end);
        }
    }
    json!({"kind": "NamespaceList", "apiVersion": "v1", "metadata": metadata, "items": items})
}

/// The offset at which a request continues.
fn start(request: &Request) -> usize {
    let token = parameter(request, "continue").unwrap_or("0%2B");
    token.trim_end_matches("%3D").trim_end_matches("%2B").rsplit("%2F").next().unwrap().parse().unwrap()
}

fn kubernetes() -> Value {
    let next = "has(body.metadata.continue) ? body.metadata.continue : ''";
    json!({"paging": {"next": next, "parameter": "continue"}, "parameters": "body.items.map(n, {'n': n.metadata.name})"})
}

/// <https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks>
#[tokio::test]
async fn kubernetes_pages_follow_the_continue_token() {
    for (selector, kept) in [("", ""), ("&labelSelector=team%20in%20(a%2Cb)", "&labelSelector=team+in+%28a%2Cb%29")] {
        let upstream = Upstream::start(|request| page("", &namespaces(request))).await;
        let reply = ask_at(&upstream, &format!("/api/v1/namespaces?limit=2{selector}"), kubernetes()).await;
        let all = r#"[{"n":"argocd"},{"n":"default"},{"n":"kube-system"},{"n":"shop"},{"n":"wiki"}]"#;
        assert_eq!(reply.sets(), all);
        // The selector stays unchanged. There is one token, the last one.
        let of = |n| format!("/api/v1/namespaces?limit=2{kept}&continue=eyJ2IjoibWV0YS5rOHMuaW8v%2F{n}%2B%3D%3D");
        assert_eq!(targets(&upstream)[1..], [of(2), of(4)]);
    }
}

/// For an expired token, Kubernetes offers another token. Its list would mix two states of the cluster.
#[tokio::test]
async fn an_expired_kubernetes_continue_token_makes_the_list_unknown() {
    let expired = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {"continue": "eyJ2IjoiaW5jb25zaXN0ZW50"}, "status": "Failure",
        "message": "The provided continue parameter is too old to display a consistent list result. You can start a new \
                    list without the continue parameter, or use the continue token in this response to retrieve the \
                    remainder of the results.",
        "reason": "Expired", "code": 410,
    });
    let forbidden = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": "namespaces is forbidden: User \"system:serviceaccount:argocd:gateway\" cannot list resource \"namespaces\"",
    });
    let list = |metadata: Value, items: Value| json!({"kind": "NamespaceList", "apiVersion": "v1", "metadata": metadata, "items": items});
    for (status, answer, code, says) in [
        (410, expired.clone(), "backend_output_invalid", "; the list has changed too much since its first page"),
        (403, forbidden, "backend_failed", "access denied (403 Forbidden)"),
        // A 200 that is no list.
        (200, expired, "backend_output_invalid", "No such key: items"),
        (200, list(json!({}), Value::Null), "backend_output_invalid", "null"),
        (200, json!({"items": []}), "backend_output_invalid", "No such key: metadata"),
    ] {
        let upstream = Upstream::start(move |request| match start(request) {
            2 => vec![Step::Send(response(status, "Content-Type: application/json", answer.to_string()))],
            _ => page("", &namespaces(request)),
        })
        .await;
        let message = refused(&ask_at(&upstream, "/api?limit=2", kubernetes()).await, 502, code, says);
        assert!(message.contains("page 2: GET http://"), "{message}");
    }
    // An empty list is an answer.
    let upstream = Upstream::start(move |_| page("", &list(json!({"resourceVersion": "7"}), json!([])))).await;
    assert_eq!(ask_at(&upstream, "/api?limit=2", kubernetes()).await.sets(), "[]");
}

/// A cursor or a URL in the body, in the format of several APIs, and the request for the second page.
#[tokio::test]
async fn a_cursor_in_the_body_leads_to_the_next_page() {
    for (first, last, next, by, second) in [
        // A cursor that is empty at the end.
        (
            json!({"response_metadata": {"next_cursor": "dXNlcjpVMEc5V0ZYTlo="}}),
            json!({"response_metadata": {"next_cursor": ""}}),
            "body.response_metadata.next_cursor",
            Some("cursor"),
            "/list?x=1&cursor=dXNlcjpVMEc5V0ZYTlo%3D",
        ),
        // The last item's name, if there is more.
        (
            json!({"has_more": true}),
            json!({"has_more": false}),
            "body.has_more ? body.items[size(body.items) - 1].n : null",
            Some("starting_after"),
            "/list?x=1&starting_after=1b",
        ),
        // A number, then none.
        (
            json!({"meta": {"next": 2}}),
            json!({"meta": {"next": null}}),
            "body.meta.next",
            Some("offset"),
            "/list?x=1&offset=2",
        ),
        // A link as in JSON:API. The last page has none.
        (
            json!({"links": {"next": "/list?x=1&page%5Bafter%5D=b"}}),
            json!({"links": {}}),
            "has(body.links.next) ? body.links.next : null",
            None,
            "/list?x=1&page%5Bafter%5D=b",
        ),
    ] {
        let with = |mut body: Value, items: Value| {
            body["items"] = items;
            body
        };
        let (first, last) = (with(first, json!([{"n": "1a"}, {"n": "1b"}])), with(last, json!([{"n": "2a"}])));
        let upstream =
            Upstream::start(move |request| page("", if request.target == "/list?x=1" { &first } else { &last })).await;
        let mut paging = json!({"next": next});
        if let Some(by) = by {
            paging["parameter"] = json!(by);
        }
        let reply = ask(&upstream, json!({"paging": paging, "parameters": "body.items"})).await;
        assert_eq!(reply.sets(), r#"[{"n":"1a"},{"n":"1b"},{"n":"2a"}]"#, "{next}");
        assert_eq!(targets(&upstream), ["/list?x=1", second]);
    }
}
