//! Metrics and probes, and that the documentation has them all.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::TcpStream,
};

use crate::{
    remotes::Certificates,
    support::{Gateway, repository, script},
};

/// The body of `path` at `address`.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn runs_and_phases_are_counted() {
    let config = "admin: 127.0.0.1:0\nplugins:\n- {config: demo, maxOutput: 1KiB, timeout: 2s}\n";
    let mut gateway = Gateway::serve(config, &[("demo", &script("exec sh ./run"))]);
    let address = gateway.address("serving probes and metrics");
    let line =
        |end: &str, count: u32| format!("cmp_gateway_runs_total{{end=\"{end}\",plugin=\"demo-v1.0\"}} {count}\n");
    let text = get(&address, "/metrics");
    assert!(text.contains(&line("0", 0)), "{text}");
    for (run, end) in [
        ("echo 'a: b'", "0"),
        ("exit 7", "7"),
        ("kill -KILL $$", "signal"),
        ("sleep 1000", "timeout"),
        ("head -c 2000 /dev/zero", "output"),
        ("sleep 1000 & echo 'a: b'", "left_behind"),
    ] {
        gateway.file("run", run);
        let _ = gateway.ask("GenerateManifest", ".", &[]);
        let text = get(&address, "/metrics");
        assert!(text.contains(&line(end, 1)), "{end}: {text}");
    }
    let text = get(&address, "/metrics");
    for phase in ["receive", "extract", "queue", "run", "answer"] {
        let count = if matches!(phase, "receive" | "extract") { 6 } else { 1 };
        let line = format!("cmp_gateway_phase_seconds_count{{phase=\"{phase}\",plugin=\"demo-v1.0\"}} {count}\n");
        assert!(text.contains(&line), "{phase}: {text}");
    }
    // Each metric is in the reference, and the reference has no others.
    let names = |text: &str| -> BTreeSet<String> {
        let words = text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
        words.filter(|word| word.starts_with("cmp_gateway_")).map(str::to_owned).collect()
    };
    let certificates = Certificates::new();
    let mut relay = certificates.relay(&["127.0.0.1:1"], "");
    let of_relay = get(&relay.address("serving probes and metrics"), "/metrics");
    let reference = std::fs::read_to_string(repository().join("docs/cmp/reference.md")).unwrap();
    let kinds: String = text.lines().chain(of_relay.lines()).filter(|line| line.starts_with("# TYPE ")).collect();
    assert_eq!(names(&kinds), names(&reference));
    for (path, expected) in
        [("/livez", "200 OK"), ("/readyz", "200 OK"), ("/healthz", "200 OK"), ("/other", "404 Not Found")]
    {
        assert!(get(&address, path).contains(expected), "{path}");
    }
}
