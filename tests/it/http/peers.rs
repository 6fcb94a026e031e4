//! Real servers as sources: nginx with files, as a proxy and as a TLS front, and plugins in other languages.

mod cut;
mod plugins;
mod tls;

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::support::nginx::Nginx;

/// A folder with the files that nginx serves.
fn site() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let www = folder.path().join("www");
    for (name, content) in [
        ("list.json", SETS.as_bytes()),
        ("empty.json", b"[]"),
        ("blank.json", b""),
        ("list.txt", SETS.as_bytes()),
        ("sorry.html", b"<html>We will be back soon</html>"),
        ("tree/eu-1/cluster.json", b"{}"),
        ("tree/us-1/cluster.json", b"{}"),
        ("packed/list.json.gz", &gzip(SETS)),
        ("packed/empty.json.gz", &gzip("[]")),
    ] {
        let file = www.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }
    folder
}

/// A list of `number` parameter sets.
fn many(number: usize) -> String {
    json!((0..number).map(|n| json!({"a": n.to_string()})).collect::<Vec<_>>()).to_string()
}

/// A configuration with the route `h`, which requests `url` with a long timeout unless `more` says otherwise.
fn patient(url: &str, more: &Value) -> String {
    let mut http = json!({"timeout": "20s"});
    http.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    config_of(url, http)
}

/// A gateway whose route `h` requests `target` from `nginx`.
async fn gateway_behind(nginx: &Nginx, target: &str, more: Value) -> TestApp {
    TestApp::start(&patient(&format!("http://{}{target}", nginx.address), &more)).await
}

async fn ask_nginx(nginx: &Nginx, target: &str) -> Reply {
    gateway_behind(nginx, target, json!({})).await.ask_afresh("h", json!({})).await
}

/// nginx with all these answers, and with compression wherever possible.
async fn nginx(more: &str) -> Nginx {
    let all =
        "root www; gzip on; gzip_types application/json; gzip_min_length 0; gzip_proxied any; keepalive_requests 2;
        location /packed/ { gzip_static always; }
        location /tree/ { autoindex on; autoindex_format json; }
        location /page/ { alias www/tree/; autoindex on; }
        location = /forbidden { deny all; }
        location = /moved { return 302 /list.json; }
        location = /none { return 204; }
        location = /sorry { error_page 404 =200 /sorry.html; }
        location = /sorry.json { error_page 404 =200 /blank.json; }
        location = /hidden { error_page 404 = @hidden; }
        location @hidden { return 200 '{}'; }
        location = /ssi/list.json { alias www/list.json; ssi on; ssi_types application/json; }
        location = /down { proxy_pass http://127.0.0.1:1; }";
    Nginx::start(site(), &format!("{all}\n{more}")).await
}

#[tokio::test]
async fn each_nginx_answer_is_a_whole_list_or_unknown() {
    let silent = Upstream::always(Vec::new()).await;
    let hanging = Upstream::start(|_| vec![Step::Hang]).await;
    let nginx = nginx(&format!(
        "location = /silent {{ proxy_pass http://{}; }}
         location = /late {{ proxy_pass http://{}; proxy_read_timeout 50ms; }}",
        silent.address, hanging.address
    ))
    .await;
    for (target, sets) in [("/list.json", SETS), ("/empty.json", "[]"), ("/ssi/list.json", SETS)] {
        assert_eq!(ask_nginx(&nginx, target).await.sets(), sets, "{target}");
    }
    let (invalid, failed) = ("backend_output_invalid", "backend_failed");
    for (target, code, says) in [
        ("/missing.json", invalid, "404 Not Found: <html>"),
        ("/blank.json", invalid, "blank"),
        ("/list.txt", invalid, "the content type is `text/plain`"),
        ("/sorry", invalid, "the content type is `text/html`"),
        ("/sorry.json", invalid, "blank"),
        ("/hidden", invalid, "the content type is `text/plain`"),
        ("/none", invalid, "204 No Content"),
        ("/moved", invalid, "unexpected status 302 Found"),
        ("/tree", invalid, "unexpected status 301 Moved Permanently"),
        ("/page/", invalid, "the content type is `text/html`"),
        ("/packed/list.json", invalid, "it is encoded (`gzip`), which was not requested"),
        ("/packed/empty.json", invalid, "it is encoded (`gzip`), which was not requested"),
        ("/", failed, "access denied (403 Forbidden): <html>"),
        ("/forbidden", failed, "access denied (403 Forbidden): <html>"),
        ("/down", failed, "502 Bad Gateway: <html>"),
        ("/silent", failed, "502 Bad Gateway: <html>"),
        ("/late", failed, "504 Gateway Timeout: <html>"),
    ] {
        refused(&ask_nginx(&nginx, target).await, 502, code, says);
    }
    let app = gateway_behind(&nginx, "/list.json", json!({"method": "POST"})).await;
    refused(&app.ask_afresh("h", json!({})).await, 502, invalid, "405 Method Not Allowed: <html>");
    // nginx ends each connection after two requests.
    let app = gateway_behind(&nginx, "/list.json", json!({})).await;
    for _ in 0..7 {
        assert_eq!(app.ask_afresh("h", json!({})).await.sets(), SETS);
    }
    assert!(nginx.log(30).await.iter().all(|line| line.ends_with(" -")), "some encoding was allowed");
}

/// A folder listing in JSON is a list of objects. Each file is a parameter set.
#[tokio::test]
async fn a_folder_listing_is_an_answer() {
    let nginx = nginx("").await;
    let folders = json!({"parameters": "body.filter(f, f.type == 'directory').map(f, {'name': f.name})"});
    let app = gateway_behind(&nginx, "/tree/", folders).await;
    let sets = app.ask_afresh("h", json!({})).await.sets();
    assert_eq!(sets, r#"[{"name":"eu-1"},{"name":"us-1"}]"#);
    fs::remove_dir_all(nginx.folder().join("www/tree")).unwrap();
    refused(&app.ask_afresh("h", json!({})).await, 502, "backend_output_invalid", "404 Not Found");
}

#[tokio::test]
async fn an_unchanged_file_costs_a_304() {
    // By its ETag, and by its modification time alone.
    for directives in ["", "etag off;"] {
        let nginx = nginx(directives).await;
        let write = |content: &str, age| {
            let file = nginx.folder().join("www/list.json");
            fs::write(&file, content).unwrap();
            let file = fs::File::options().write(true).open(file).unwrap();
            file.set_modified(std::time::SystemTime::now() - Duration::from_secs(age)).unwrap();
        };
        write(SETS, 60);
        let app = gateway_behind(&nginx, "/list.json", json!({})).await;
        for _ in 0..3 {
            assert_eq!(app.ask_afresh("h", json!({})).await.sets(), SETS);
        }
        write(&many(2), 30);
        for _ in 0..2 {
            assert_eq!(app.ask_afresh("h", json!({})).await.sets(), many(2));
        }
        let statuses: Vec<String> =
            nginx.log(5).await.iter().map(|line| line.split(' ').nth(2).unwrap().to_owned()).collect();
        assert_eq!(statuses, ["200", "304", "304", "200", "304"], "{directives}");
    }
}

#[tokio::test]
async fn a_slow_answer_is_whole_or_unknown() {
    let list = many(300);
    for (rate, timeout) in [("2000", "60s"), ("10", "1s")] {
        let nginx = nginx(&format!("location = /slow.json {{ limit_rate {rate}; }}")).await;
        fs::write(nginx.folder().join("www/slow.json"), &list).unwrap();
        let reply =
            gateway_behind(&nginx, "/slow.json", json!({"timeout": timeout})).await.ask_afresh("h", json!({})).await;
        if timeout == "60s" {
            assert_eq!(reply.sets(), list);
        } else {
            refused(&reply, 504, "backend_timeout", "no whole answer in time");
        }
    }
}
