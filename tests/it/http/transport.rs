//! Connections that break off, carry wrong bytes, or are slow.

use super::*;

/// Every position at which a connection can end.
#[tokio::test]
async fn a_connection_that_ends_early_is_unknown() {
    let plain = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    for (whole, must_fail) in [
        (json_response(SETS), 0),
        (json_response("[]"), 0),
        // The list is complete without its last bytes.
        (format!("{plain}Transfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n").into_bytes(), 2),
        (format!("{plain}\r\n{SETS}").into_bytes(), 0),
    ] {
        let length = whole.len();
        let bytes = whole.clone();
        let upstream = Upstream::start(move |request| {
            let end: usize = request.target.trim_start_matches('/').parse().unwrap();
            send(&bytes[..end])
        })
        .await;
        let app = serve(&upstream, "/{{ params.end }}", json!({})).await;
        let replies =
            join_all((0..=length).map(async |end| (end, app.ask_afresh("h", json!({"end": end})).await))).await;
        for (end, reply) in replies {
            let sent = String::from_utf8_lossy(&whole[..end]).into_owned();
            if end == length {
                assert_eq!(reply.status, 200, "{sent}");
            } else if end + must_fail < length {
                assert_eq!(reply.status, 502, "{sent}: {}", reply.text());
                let code = reply.code();
                assert!(code == "backend_failed" || code == "backend_output_invalid", "{code}");
            }
        }
    }
}

#[tokio::test]
async fn a_broken_transport_is_unknown() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    for (name, steps) in [
        ("reset", vec![Step::Reset]),
        ("reset in the head", vec![Step::Send(head.into()), Step::Reset]),
        ("reset in the body", vec![Step::Send(format!("{head}Content-Length: 9\r\n\r\n[").into()), Step::Reset]),
        ("too long a length", send(format!("{head}Content-Length: 12\r\n\r\n{SETS}"))),
        ("two lengths", send(format!("{head}Content-Length: 2\r\nContent-Length: 11\r\n\r\n{SETS}"))),
        ("no length", send(format!("{head}Content-Length: x\r\n\r\n{SETS}"))),
        ("no chunk", send(format!("{head}Transfer-Encoding: chunked\r\n\r\n{SETS}"))),
        ("no HTTP", send("SSH-2.0-OpenSSH_9.2\r\n")),
        ("no head", send(SETS)),
        ("an endless head", send(format!("{head}X: {}", "x".repeat(1_000_000)))),
    ] {
        let reply = ask(steps, json!({})).await;
        assert_eq!((reply.status, &*reply.code()), (502, "backend_failed"), "{name}: {}", reply.text());
        refused(&reply, 502, "backend_failed", "GET http://127.0.0.1:");
    }
    // A `Content-Length` that is too short hides the rest.
    let reply = ask(send(format!("{head}Content-Length: 5\r\n\r\n{SETS}")), json!({})).await;
    refused(&reply, 502, "backend_output_invalid", "EOF");
    // Nothing listens at the address.
    let upstream = Upstream::always(Vec::new()).await;
    let app = serve(&upstream, "/", json!({})).await;
    drop(upstream);
    while refused(&app.ask_afresh("h", json!({})).await, 502, "backend_failed", "").contains("broke") {}
    refused(&app.ask_afresh("h", json!({})).await, 502, "backend_failed", "cannot connect");
}

#[tokio::test]
async fn slowness_ends_with_the_timeout() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    let slow = [
        ("silence", vec![Step::Hang]),
        ("half a head", vec![Step::Send(head.into()), Step::Hang]),
        ("an interim answer", vec![Step::Send(b"HTTP/1.1 103 Early Hints\r\n\r\n".to_vec()), Step::Hang]),
        ("a head", vec![Step::Send(format!("{head}Content-Length: 2\r\n\r\n").into()), Step::Hang]),
        ("all but the end", vec![Step::Send(format!("{head}\r\n[]").into()), Step::Hang]),
        ("drops", vec![Step::Drip(json_response(SETS), Duration::from_millis(50))]),
    ];
    let replies = slow.map(async |(name, steps)| {
        let started = Instant::now();
        let reply = ask(steps, json!({"timeout": "500ms"})).await;
        refused(&reply, 504, "backend_timeout", "GET http://127.0.0.1:");
        assert!(started.elapsed() < Duration::from_secs(15), "{name}: {:?}", started.elapsed());
    });
    join_all(replies).await;
}
