//! A source behind nginx that breaks off: never a shorter list.

use super::*;

/// More objects than nginx's buffers hold.
const ITEMS: usize = 20_000;

/// A whole answer in the three framings of HTTP/1.1: with a length, in chunks, and until the connection ends.
fn answers(list: &str) -> [(&'static str, Vec<u8>); 3] {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
    let (first, second) = list.split_at(list.len() / 3);
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n{}{}0\r\n\r\n", chunk(first), chunk(second));
    [
        ("a length", response(200, "Content-Type: application/json", list)),
        ("chunks", chunked.into_bytes()),
        ("an end", format!("{head}\r\n{list}").into_bytes()),
    ]
}

/// nginx settings: buffering, the HTTP version upstream, and the framing downstream.
const NGINX_SETTINGS: [&str; 4] = [
    "proxy_http_version 1.0;",
    "proxy_buffering off;",
    "proxy_http_version 1.1; proxy_set_header Connection '';",
    "proxy_http_version 1.1; proxy_buffering off; chunked_transfer_encoding off;",
];

/// nginx that proxies `upstream` with each setting below its number, and a gateway that requests it there.
async fn passed_on(upstream: &Upstream) -> (Nginx, TestApp) {
    let location = |(n, way)| format!("location = /{n} {{ proxy_pass http://{}; {way} }}\n", upstream.address);
    let nginx = nginx(&NGINX_SETTINGS.iter().enumerate().map(location).collect::<String>()).await;
    let app = gateway_behind(&nginx, "/{{ params.way }}", json!({})).await;
    (nginx, app)
}

#[tokio::test]
async fn a_whole_answer_passes_through_nginx() {
    let list = many(ITEMS);
    for (how, whole) in answers(&list) {
        let upstream = Upstream::always(whole).await;
        let (_nginx, app) = passed_on(&upstream).await;
        for (n, way) in NGINX_SETTINGS.iter().enumerate() {
            assert_eq!(app.ask_afresh("h", json!({"way": n})).await.sets(), list, "{how}, {way}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_unknown() {
    for count in [2, ITEMS] {
        let list = many(count);
        for (how, whole) in answers(&list) {
            for end in [Some(Step::Reset), None] {
                let cut = whole.len() - list.len() / 2;
                let steps: Vec<Step> = [Step::Send(whole[..cut].to_vec())].into_iter().chain(end).collect();
                let upstream = Upstream::start(move |_| steps.clone()).await;
                let (_nginx, app) = passed_on(&upstream).await;
                for (n, way) in NGINX_SETTINGS.iter().enumerate() {
                    let reply = app.ask_afresh("h", json!({"way": n})).await;
                    let message = refused(&reply, 502, &reply.code(), "GET http://127.0.0.1:");
                    let expected = ["the answer broke off", "502 Bad Gateway", "not one JSON document: EOF"];
                    assert!(
                        expected.iter().any(|expected| message.contains(expected)),
                        "{count}, {how}, {way}: {message}"
                    );
                }
            }
        }
    }
}

/// A page is cut like any other answer.
#[tokio::test]
async fn a_page_that_breaks_off_makes_the_whole_list_unknown() {
    let upstream = Upstream::start(|request| {
        let link = "Content-Type: application/json\r\nLink: </x?page=2>; rel=\"next\"";
        let mut bytes = response(200, link, SETS);
        if request.target.ends_with("page=2") {
            bytes.truncate(bytes.len() - 4);
        }
        send(bytes)
    })
    .await;
    let nginx = nginx(&format!("location / {{ proxy_pass http://{}; }}", upstream.address)).await;
    let app = gateway_behind(&nginx, "/x", json!({"paging": {"link": true}})).await;
    refused(&app.ask_afresh("h", json!({})).await, 502, "backend_failed", "page 2: ");
}
