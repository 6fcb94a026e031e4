//! Lists of tags and repositories: complete, or an error.

use super::*;
use crate::support::{proxy::Proxy, registry::Registry};

async fn tags(upstream: &Upstream) -> Result<Result<Vec<String>, Missing>, BackendError> {
    let registries = registries(&plain(&upstream.address));
    registries.tags(&upstream.address.to_string(), "org/app", deadline()).await
}

#[tokio::test]
async fn all_tags_of_a_real_repository() {
    let registry = Registry::start().await;
    registry.push("front:feature-branch-1", "org/app:main").await;
    let mut expected: Vec<String> = (0..320).map(|number| format!("t{number:03}")).collect();
    let asked = registries(&plain(&registry.host));
    let copy = |tag: &String| registry.copy("org/app/_manifests/tags/main", &format!("org/app/_manifests/tags/{tag}"));
    // A full page may be the first of several.
    expected[..249].iter().for_each(copy);
    assert_eq!(asked.tags(&registry.host, "org/app", deadline()).await.unwrap().unwrap().len(), 250);
    expected[249..].iter().for_each(copy);
    expected.push("main".to_owned());
    let mut found = asked.tags(&registry.host, "org/app", deadline()).await.unwrap().unwrap();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    expect_digest(look_up(&asked, &format!("{}/org/app:t319", registry.host)).await);
    assert_eq!(asked.tags(&registry.host, "org/none", deadline()).await.unwrap(), Err(Missing::Repository));
}

#[tokio::test]
async fn all_repositories_of_a_real_registry() {
    let registry = Registry::start().await;
    registry.push("front:feature-branch-1", "org/r000:main").await;
    let expected: Vec<String> = (0..320).map(|number| format!("org/r{number:03}")).collect();
    for name in &expected[1..] {
        registry.copy("org/r000", name);
    }
    let proxy = Proxy::start(&registry.host).await;
    let registries = registries(&plain(&proxy.address));
    let found = registries.repositories(&proxy.address.to_string(), deadline()).await.unwrap();
    assert_eq!(found, expected);
    let pages: Vec<String> = proxy.requests().into_iter().map(|request| request.target).collect();
    assert_eq!(pages, ["/v2/_catalog?n=250", "/v2/_catalog?last=org%2Fr249&n=250"]);
    expect_digest(look_up(&registries, &format!("{}/org/r319:main", proxy.address)).await);
}

/// A registry with these `pages`: the query for each, the `Link` after it, and its body.
async fn paged(pages: &[(&'static str, &'static str, &'static str)]) -> Upstream {
    let pages = pages.to_vec();
    Upstream::start(move |request| {
        let query = request.target.strip_prefix("/v2/org/app/tags/list?").unwrap_or_default();
        match pages.iter().find(|(asked, ..)| *asked == query) {
            Some((_, link, body)) => {
                let link = link.replace("HOST", request.header("host").unwrap());
                request.answer(200, &format!("{JSON}{link}"), body)
            }
            None => request.answer(404, JSON, r#"{"errors":[{"code":"NAME_UNKNOWN"}]}"#),
        }
    })
    .await
}

#[tokio::test]
async fn all_pages_of_a_list_are_read() {
    let (one, two, three) = (r#"{"tags":["a"]}"#, r#"{"tags":[]}"#, r#"{"tags":["b","a"]}"#);
    let none = r#"{"name":"org/app","tags":null}"#;
    for pages in [
        // Relative, absolute, and without a path. A short or empty page is not the last.
        &[("n=250", "\r\nLink: </v2/org/app/tags/list?n=250&last=a>; rel=\"next\"", one), ("n=250&last=a", "", three)],
        &[("n=250", "\r\nLink: <http://HOST/v2/org/app/tags/list?last=a>;rel=next", one), ("last=a", "", three)],
        &[("n=250", "\r\nLink: <?last=a>; title=\"x\"; rel=\"last next\"", one), ("last=a", "", three)],
        &[("n=250", "\r\nLink: <?c=a,b;d>; rel=\"next\"", one), ("c=a,b;d", "", three)],
        &[("n=250", "\r\nLink: </x>; rel=\"prev\", <?last=a>; rel=\"next\"", one), ("last=a", "", three)],
        &[("n=250", "\r\nLink: <?last=a>; rel=\"next\"", two), ("last=a", "\r\nLink: </x>; rel=\"prev\"", three)],
    ] {
        let found = tags(&paged(pages).await).await.unwrap().unwrap();
        assert!(found == ["a", "b"] || found == ["b", "a"], "{pages:?}: {found:?}");
    }
    assert_eq!(tags(&paged(&[("n=250", "", none)]).await).await.unwrap(), Ok(vec![]));
    assert_eq!(tags(&paged(&[]).await).await.unwrap(), Err(Missing::Repository));
}

/// A registry behind a proxy often writes the scheme, the port and the path that it has itself. Only its host must be right.
#[tokio::test]
async fn the_next_page_may_be_named_as_the_server_sees_itself() {
    for (link, path) in [
        ("https://NAME/v2/org/app/tags/list?last=a", "/v2/org/app/tags/list?last=a"),
        (
            "http://NAME:8081/repository/docker-hosted/v2/org/app/tags/list?last=a",
            "/repository/docker-hosted/v2/org/app/tags/list?last=a",
        ),
        (
            "/artifactory/api/docker/local/v2/org/app/tags/list?last=a",
            "/artifactory/api/docker/local/v2/org/app/tags/list?last=a",
        ),
        // The path is not served to the outside.
        ("/repository/docker-hosted/v2/org/app/tags/list?last=a", "/v2/org/app/tags/list?last=a"),
        // A proxy has put `org/` in front.
        ("/v2/app/tags/list?last=a", "/v2/org/app/tags/list?last=a"),
    ] {
        let registry = Upstream::start(move |request| {
            let name = request.header("host").unwrap().split(':').next().unwrap();
            if request.target == "/v2/org/app/tags/list?n=250" {
                let link = format!("{JSON}\r\nLink: <{}>; rel=\"next\"", link.replace("NAME", name));
                return request.answer(200, &link, r#"{"tags":["a"]}"#);
            }
            if request.target == path {
                request.answer(200, JSON, r#"{"tags":["b"]}"#)
            } else {
                request.answer(404, "", "")
            }
        })
        .await;
        assert_eq!(tags(&registry).await.unwrap().unwrap(), ["a", "b"], "{link}");
    }
}

/// The `Link` of a full page may be missing.
#[tokio::test]
async fn a_full_page_without_a_link_is_continued_by_name() {
    let all: Vec<String> = (0..600).map(|number| format!("t{number:03}")).collect();
    // The number of names, whether the registry supports `n` and `last`, the number of names found, and the number of requests.
    for (count, knows_n, knows_last, found, asked) in [
        (249, true, true, Some(249), 1),
        (250, true, true, Some(250), 2),
        (251, true, true, Some(251), 2),
        (501, true, true, Some(501), 3),
        (600, true, true, Some(600), 3),
        (250, false, false, Some(250), 2),
        (251, false, false, Some(251), 1),
        (600, false, false, Some(600), 1),
        (250, true, false, Some(250), 2),
        (251, true, false, None, 2),
    ] {
        let tags = all[..count].to_vec();
        let upstream = Upstream::start(move |request| {
            let query = request.target.split_once('?').unwrap().1;
            let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            let is_after = |tag: &&String| !knows_last || value("last").is_none_or(|last| tag.as_str() > last);
            let page_size = if knows_n { value("n").unwrap().parse().unwrap() } else { usize::MAX };
            let page: Vec<&String> = tags.iter().filter(is_after).take(page_size).collect();
            request.answer(200, JSON, json!({"name": "org/app", "tags": page}).to_string())
        })
        .await;
        let case = format!("{count}, {knows_n}, {knows_last}");
        match (super::lists::tags(&upstream).await, found) {
            (Ok(names), Some(found)) => assert_eq!(names.unwrap(), all[..found], "{case}"),
            (said, None) => {
                refused(said, ErrorKind::InvalidOutput, "its page is full and has no `Link`");
            }
            (said, found) => panic!("{case}: {said:?}, {found:?}"),
        }
        assert_eq!(upstream.requests().len(), asked, "{case}");
    }
}

#[tokio::test]
async fn a_partial_list_is_an_error() {
    let one = r#"{"tags":["a"]}"#;
    for (pages, says) in [
        (&[("n=250", "\r\nLink: <?last=a>; rel=\"next\"", one)][..], "unexpected status 404"),
        (&[("n=250", "\r\nLink: <?last=a>; rel=\"next\"", r#"{"tags":[]}"#)], "unexpected status 404"),
        (&[("n=250", "\r\nLink: <?n=250>; rel=\"next\"", one)], "circle"),
        (&[("n=250", "\r\nLink: <?n=1>; rel=next", one), ("n=1", "\r\nLink: <?n=250>; rel=next", one)], "circle"),
        (&[("n=250", "\r\nLink: </v2/org/other/tags/list?n=1>; rel=\"next\"", one)], "not of this list"),
        (&[("n=250", "\r\nLink: <http://127.0.0.2/v2/org/app/tags/list?n=1>; rel=\"next\"", one)], "not of this list"),
        (&[("n=250", "\r\nLink: <https://HOST/v2/org/app/tags/list?n=1>; rel=\"next\"", one)], "unexpected status 404"),
        (&[("n=250", "\r\nLink: <ftp://HOST/v2/org/app/tags/list?n=1>; rel=\"next\"", one)], "not of this list"),
        (&[("n=250", "\r\nLink: </api/docker/v2/org/other/tags/list?n=1>; rel=\"next\"", one)], "not of this list"),
        (&[("n=250", "\r\nLink: /v2/org/app/tags/list?n=1; rel=\"next\"", one)], "not of this list"),
        (&[("n=250", "\r\nLink: <>; rel=\"next\"", one)], "circle"),
        (&[("n=250", "", "{}")], "no list"),
        (&[("n=250", "", r#"{"tags":["a",null]}"#)], "no list"),
        (&[("n=250", "", "<html>")], "no list"),
        // An object instead of a list.
        (&[("n=250", "", "[null]")], "no list"),
        (&[("n=250", "", "[[]]")], "no list"),
        (&[("n=250", "", r#"{"tags":[],"errors":[{"code":"UNAVAILABLE"}]}"#)], "it names errors"),
        (&[("n=250", "", r#"{"tags":[],"error":"down"}"#)], "it names errors"),
        (&[("n=250", "\r\nLink: <?last=a>; rel*=UTF-8''next", one)], "not of this list"),
        (&[("n=250", "\r\nLink: <?last=a>; title=\"x; rel=next", one)], "not of this list"),
    ] {
        let message = refused(tags(&paged(pages).await).await, ErrorKind::InvalidOutput, says);
        assert!(message.contains("the tags of org/app"), "{message}");
    }
    let registry =
        Upstream::start(|request| request.answer(404, JSON, r#"{"errors":[{"code":"NAME_UNKNOWN"}]}"#)).await;
    let catalogue = registries(&plain(&registry.address)).repositories(&registry.address.to_string(), deadline()).await;
    refused(catalogue, ErrorKind::InvalidOutput, "its catalogue: it has none");
}

/// A registry with endless pages, and a registry with too many names.
#[tokio::test]
async fn an_endless_list_is_an_error() {
    let patient = || Instant::now() + Duration::from_mins(1);
    let endless = Upstream::start(|request| {
        let page: usize = request.target.rsplit_once("last=").map_or(0, |(_, page)| page.parse().unwrap());
        let next = format!("{JSON}\r\nLink: <?last={}>; rel=\"next\"", page + 1);
        request.answer(200, &next, r#"{"tags":[]}"#)
    })
    .await;
    let says = "more than 50000 names or 1000 pages";
    let found = registries(&plain(&endless.address)).tags(&endless.address.to_string(), "org/app", patient()).await;
    refused(found, ErrorKind::InvalidOutput, says);
    assert_eq!(endless.requests().len(), 1001);
    for (count, is_whole) in [(50_000, true), (50_001, false)] {
        let names: Vec<String> = (0..count).map(|number| format!("t{number}")).collect();
        let body = json!({ "tags": names }).to_string();
        let large = Upstream::start(move |request| request.answer(200, JSON, &body)).await;
        let found = registries(&plain(&large.address)).tags(&large.address.to_string(), "org/app", patient()).await;
        if is_whole {
            assert_eq!(found.unwrap(), Ok(names));
        } else {
            refused(found, ErrorKind::InvalidOutput, says);
        }
    }
}
