//! HTTP as bytes: the requests of Argo CD's client, and the responses.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};

use super::{
    ADMIN_TOKEN,
    argo::{Verdict, evaluate, evaluate_raw},
};

/// A whole response.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    /// The status.
    pub status: u16,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// All bytes of the response.
    pub raw: Vec<u8>,
}

impl Reply {
    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The `message` of an error body.
    pub(crate) fn message(&self) -> String {
        self.json()["message"].as_str().unwrap_or_else(|| panic!("no message: {}", self.text())).to_owned()
    }

    /// The `code` of an error body.
    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_else(|| panic!("no code: {}", self.text())).to_owned()
    }

    /// What Argo CD makes of it.
    pub(crate) fn verdict(&self) -> Verdict {
        evaluate_raw(&self.raw)
    }

    /// The parameter sets of an answer, as JSON text. `[]` for an explicitly empty one.
    pub(crate) fn sets(&self) -> String {
        match self.verdict() {
            Verdict::Parameters(sets) => serde_json::to_string(&sets).unwrap(),
            Verdict::ExplicitlyEmpty => "[]".to_owned(),
            other => panic!("{other:?}"),
        }
    }
}

/// A request as Argo CD's client writes it.
pub(crate) fn argo_request(path: &str, token: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: gateway\r\nUser-Agent: argocd-applicationset\r\nContent-Length: {}\r\n\
         Accept-Encoding: gzip\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// A request of an operator to the admin listener.
pub(crate) fn operator_request(method: &str, path: &str, body: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Sends `request` on a new connection and reads one response.
pub(crate) async fn exchange(address: SocketAddr, request: &[u8]) -> Reply {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    read_reply(&mut stream).await
}

/// As [`send`], from the loopback address `own`.
pub(crate) async fn exchange_from(own: Ipv4Addr, address: SocketAddr, request: &[u8]) -> Reply {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((own, 0).into()).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    read_reply(&mut stream).await
}

/// As [`send`], to the admin listener, whose answers are not for Argo CD.
pub(crate) async fn exchange_admin(address: SocketAddr, request: &[u8]) -> Reply {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    read_whole(&mut stream).await
}

/// Reads one response. Panics if a reply of the main listener would look empty to Argo CD by accident.
pub(crate) async fn read_reply(stream: &mut (impl AsyncRead + Unpin)) -> Reply {
    let reply = read_whole(stream).await;
    if reply.header("content-type") == Some("application/json") {
        let verdict = reply.verdict();
        assert!(!matches!(verdict, Verdict::AccidentallyEmpty { .. }), "{verdict:?}: {}", reply.text());
        assert_eq!(verdict, evaluate(reply.status, &reply.headers, &reply.body));
    }
    reply
}

/// Reads one response with a `Content-Length`, which every response of the gateway has (invariant I1).
pub(crate) async fn read_whole(stream: &mut (impl AsyncRead + Unpin)) -> Reply {
    let mut raw = Vec::new();
    let end = loop {
        if let Some(end) = raw.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        let read = stream.read_buf(&mut raw).await.unwrap();
        assert!(read > 0, "the connection ended in the head: {:?}", String::from_utf8_lossy(&raw));
    };
    let head = String::from_utf8(raw[..end].to_vec()).unwrap();
    let mut lines = head.trim_end().split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers: Vec<(String, String)> = lines
        .map(|line| line.split_once(':').unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length").expect("a Content-Length");
    let length: usize = length.1.parse().unwrap();
    while raw.len() < end + length {
        let read = stream.read_buf(&mut raw).await.unwrap();
        assert!(read > 0, "the connection ended in the body");
    }
    Reply { status, headers, body: raw[end..end + length].to_vec(), raw }
}
