//! `format` and `contentType`: documents that are not JSON.

use serde_json::json;

use super::{ask, serve, status};
use crate::support::upstream::{Step, Upstream, refused, response};

const INDEX: &str = "apiVersion: v1\nentries:\n  shop:\n    - &one {name: shop, version: 1.10.0, appVersion: 1.10}\n    - {name: shop, version: 1.9.0}\n  blog: [*one]\n";
const S3: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><IsTruncated>false</IsTruncated>
<Contents><Key>a/values.yaml</Key><Size>7</Size></Contents></ListBucketResult>"#;

#[tokio::test]
async fn each_format_becomes_values() {
    for (content_type, body, more, sets) in [
        (
            "application/x-yaml",
            INDEX,
            json!({"format": "yaml", "parameters": "body.entries.shop.map(v, {'v': v.version, 'app': has(v.appVersion) ? string(v.appVersion) : ''})"}),
            r#"[{"app":"1.10","v":"1.10.0"},{"app":"","v":"1.9.0"}]"#,
        ),
        (
            "text/plain; charset=utf-8",
            "# teams\nred\n\nblue\n",
            json!({"format": "text", "parameters": "body.split('\\n').filter(l, l != '' && !l.startsWith('#')).map(l, {'team': l})"}),
            r#"[{"team":"red"},{"team":"blue"}]"#,
        ),
        (
            "application/xml",
            S3,
            json!({"format": "xml", "xmlLists": ["ListBucketResult/Contents"], "parameters": "body.ListBucketResult.Contents.map(c, {'key': c.Key})"}),
            r#"[{"key":"a/values.yaml"}]"#,
        ),
        ("text/plain", r#"[{"a":"1"}]"#, json!({"contentType": "any"}), r#"[{"a":"1"}]"#),
        (
            "application/octet-stream",
            r#"[{"a":"1"}]"#,
            json!({"contentType": ["application/octet-stream"]}),
            r#"[{"a":"1"}]"#,
        ),
    ] {
        let reply = ask(status(200, &format!("Content-Type: {content_type}"), body), more).await;
        assert_eq!(reply.sets(), sets, "{content_type}");
    }
}

#[tokio::test]
async fn what_is_not_such_a_document_is_unknown() {
    let level = |level: usize| format!("a{level}: &a{level} [{}]\n", format!("*a{},", level - 1).repeat(10));
    let levels: Vec<String> = (1..10).map(level).collect();
    let bomb = format!("a0: &a0 [x,x]\n{}", levels.concat());
    let latin = b"a: \xe4\n".to_vec();
    let cases: [(&str, Vec<u8>, serde_json::Value, &str); 12] = [
        (
            "text/html",
            "<html>Sign in</html>".into(),
            json!({"format": "yaml"}),
            "the content type is `text/html`, which is not accepted",
        ),
        (
            "text/html",
            "Sign in".into(),
            json!({"format": "text"}),
            "the content type is `text/html`, which is not accepted",
        ),
        (
            "application/json",
            "[]".into(),
            json!({"contentType": ["text/plain"]}),
            "which is not accepted (`contentType`)",
        ),
        ("text/yaml", bomb.into(), json!({"format": "yaml"}), "budget breached"),
        ("text/yaml", "a: 1\na: 2\n".into(), json!({"format": "yaml"}), "the key `a` stands twice"),
        ("text/yaml", "a: 1\n---\nb: 2\n".into(), json!({"format": "yaml"}), "it has 2 documents"),
        (
            "text/yaml",
            "error: down\nitems: []\n".into(),
            json!({"format": "yaml", "parameters": "body.items"}),
            "it holds `error`",
        ),
        ("text/yaml", latin, json!({"format": "yaml"}), "it is not UTF-8 from byte 3 on"),
        (
            "text/plain; charset=iso-8859-15",
            "a".into(),
            json!({"format": "text"}),
            "the charset `iso-8859-15`, and only UTF-8 is read",
        ),
        ("text/plain", "a".into(), json!({"format": "text"}), "found a string"),
        ("text/xml", "<a><b></a>".into(), json!({"format": "xml"}), "not an XML document"),
        (
            "text/xml",
            S3.replace("<IsTruncated>false", "<IsTruncated>true").into(),
            json!({"format": "xml", "parameters": "[body.ListBucketResult]"}),
            "it is one page of several (`IsTruncated`)",
        ),
    ];
    for (content_type, body, more, says) in cases {
        let steps = vec![Step::Send(response(200, &format!("Content-Type: {content_type}"), body))];
        refused(&ask(steps, more).await, 502, "backend_output_invalid", says);
    }
}

/// A whole index of charts may be larger than expected.
#[tokio::test]
async fn an_index_that_is_too_large_is_named() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/yaml\r\nContent-Length: 52428800\r\n\r\n";
    let steps = vec![Step::Send(head.into()), Step::Flood(vec![b' '; 65_536])];
    refused(&ask(steps, json!({"format": "yaml"})).await, 502, "backend_output_invalid", "8388608 bytes");
}

#[tokio::test]
async fn pages_have_the_same_format() {
    let page = |key: &str, next: &str| {
        let truncated = !next.is_empty();
        format!("<L><IsTruncated>{truncated}</IsTruncated><C><Key>{key}</Key></C><Next>{next}</Next></L>")
    };
    let upstream = Upstream::start(move |request| {
        let body = if request.target.contains("token=t2") { page("b", "") } else { page("a", "t2") };
        status(200, "Content-Type: application/xml", &body)
    })
    .await;
    let paging = json!({"next": "body.L.Next", "parameter": "token"});
    let more =
        json!({"format": "xml", "xmlLists": ["L/C"], "parameters": "body.L.C.map(c, {'k': c.Key})", "paging": paging});
    let app = serve(&upstream, "/list", more).await;
    assert_eq!(app.ask_afresh("h", json!({})).await.sets(), r#"[{"k":"a"},{"k":"b"}]"#);
    let accepts: Vec<_> =
        upstream.requests().iter().map(|request| request.header("accept").unwrap().to_owned()).collect();
    assert!(accepts.len() == 2 && accepts.iter().all(|accept| accept.starts_with("application/xml,")), "{accepts:?}");
    // The lines of a text, in pages that the header links.
    let upstream = Upstream::start(move |request| {
        let (headers, body) = match &*request.target {
            "/list" => ("Content-Type: text/plain\r\nLink: </2>; rel=\"next\"", "a\nb"),
            _ => ("Content-Type: text/plain", "c"),
        };
        status(200, headers, body)
    })
    .await;
    let more = json!({
        "format": "text", "paging": {"link": true}, "headers": {"Accept": "text/plain"},
        "parameters": "body.split('\\n').map(l, {'l': l})",
    });
    let app = serve(&upstream, "/list", more).await;
    assert_eq!(app.ask_afresh("h", json!({})).await.sets(), r#"[{"l":"a"},{"l":"b"},{"l":"c"}]"#);
    assert!(upstream.requests().iter().all(|request| request.header("accept") == Some("text/plain")));
}

/// As a forge serves a raw file that is not there.
#[tokio::test]
async fn a_missing_text_is_proven_by_its_words() {
    let more =
        json!({"format": "text", "absent": "status == 404 && body == '404: Not Found'", "parameters": "[{'t': body}]"});
    let reply = ask(status(404, "Content-Type: text/plain; charset=utf-8", "404: Not Found"), more.clone()).await;
    assert_eq!(reply.sets(), "[]");
    let reply = ask(status(404, "Content-Type: text/plain", "no such host"), more).await;
    refused(&reply, 502, "backend_output_invalid", "not the proof");
}
