//! What a load balancer sees that asks whether the port for hooks is there.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::*;
use crate::support::wire::exchange;

#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_finds_the_port_healthy_and_learns_nothing() {
    let scene = Scene::start(json!([hook("github", "secret")])).await;
    let ask = async |request: &str| {
        let request = format!("{request} HTTP/1.1\r\nHost: gateway\r\n\r\n");
        exchange(scene.gateway.hooks.unwrap(), request.as_bytes()).await
    };
    for path in ["/", "/livez", "/?from=a-balancer"] {
        let reply = ask(&format!("GET {path}")).await;
        assert_eq!((reply.status, reply.text().trim()), (200, "ok"), "{path}");
        let mut stream = TcpStream::connect(scene.gateway.hooks.unwrap()).await.unwrap();
        let request = format!("HEAD {path} HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = String::new();
        stream.read_to_string(&mut head).await.unwrap();
        assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    }
    for (request, status) in [
        ("GET /readyz", 404),
        ("GET /metrics", 404),
        ("GET /hooks", 404),
        // As of a hook that exists.
        ("GET /hooks/none", 405),
        ("GET /hooks/github", 405),
        ("POST /livez", 404),
        ("POST /", 404),
    ] {
        assert_eq!(ask(request).await.status, status, "{request}");
    }
}
