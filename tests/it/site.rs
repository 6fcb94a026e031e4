//! Calls of the plugin generator go past the router. It would give them the same responses.

use std::{sync::Arc, time::Duration};

use appset_gateway::http::{
    edge::Site,
    server::{self, edge},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::support::{TOKEN, TestApp};

const ROUTES: &str = "  - { name: r, match: {}, backend: { fixed: { parameters: [ { a: b } ] } } }\n\
                      \x20 - { name: one-more.2, backend: { fixed: { parameters: [ { c: d } ] } } }\n";
const CALL: &str = "/api/v1/getparams.execute";

/// The status line, the headers in order, and the body. Without what differs from call to call.
fn read(response: &str) -> (String, Vec<String>, String) {
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    let mut lines = head.split("\r\n").map(str::to_lowercase);
    let status = lines.next().unwrap();
    let differs =
        |line: &String| ["date: ", "server-timing: ", "cache-status: "].iter().any(|name| line.starts_with(name));
    let mut headers: Vec<_> = lines.filter(|line| !differs(line)).collect();
    headers.sort();
    (status, headers, body.to_owned())
}

#[tokio::test]
async fn a_call_gets_from_the_router_what_it_gets_without() {
    let app = TestApp::with_routes(ROUTES).await;
    let listen = async |site: Site| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, edge, phases) = (listener.local_addr().unwrap(), edge(&app.app), app.app.lifecycle.watch());
        tokio::spawn(async move { edge.serve(listener, site, phases, || Duration::ZERO).await });
        address
    };
    let direct = listen(server::site(&app.app)).await;
    let routed = listen(server::router(Arc::clone(&app.app)).into()).await;
    let ask = async |address, head: String, body: &str| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let length = body.len();
        let request = format!(
            "{head}\r\nHost: h\r\nX-Request-Id: i\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        read(&response)
    };
    let named = [
        "",
        "/r",
        "/one-more.2",
        "/none",
        "/r/",
        "//r",
        "/",
        "/r/s",
        "/%72",
        "/r%2f",
        "/%ff",
        "/R",
        "/*",
        "/{route}",
        "/r;a=b",
        "/.",
        "/..",
        "/é",
    ];
    let paths = named.iter().map(|name| format!("{name}{CALL}"));
    let other = [
        "/",
        "/openapi.yaml",
        "/api/v1/getparams",
        "/r/api/v1/getparams.execute/",
        "*",
        "/r/api/v1/getparams%2eexecute",
    ];
    let paths =
        paths.chain(other.map(str::to_owned)).chain([format!("{CALL}?a=/r{CALL}"), format!("http://other{CALL}")]);
    let mut answered = 0;
    for path in paths {
        for method in ["POST", "GET", "HEAD", "PUT", "OPTIONS", "post", "NONE"] {
            for (token, body) in [(TOKEN, "{}"), (TOKEN, ""), (TOKEN, "{"), ("wrong", "{}")] {
                if token == "wrong" && method != "POST" {
                    // Too many would be refused for their number.
                    continue;
                }
                let head = || format!("{method} {path} HTTP/1.1\r\nAuthorization: Bearer {token}");
                let (one, other) = (ask(direct, head(), body).await, ask(routed, head(), body).await);
                assert_eq!(one, other, "{method} {path} {token} {body}");
                answered += usize::from(one.0.ends_with("200 ok") && method == "POST");
            }
        }
    }
    assert!(answered >= 4, "{answered}");
}
