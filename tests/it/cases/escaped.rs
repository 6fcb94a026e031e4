//! A secret that a source repeats in another form, such as escaped JSON, is in no part of a recorded case.

use std::fmt::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::*;
use crate::support::upstream::{Step, Upstream, json_response, response};

const TOKEN: &str = "s3cr/t+Tok&n=42";
const ISSUED: &str = "iss/ued+9<8>7";
const PIN: &str = "48213377";

/// `text` in JSON as programs write it that escape more than they need to.
fn escaped(text: &str) -> String {
    let mut written = String::new();
    for c in text.chars() {
        match c {
            '/' => written.push_str("\\/"),
            _ if c.is_alphanumeric() => written.push(c),
            _ => _ = write!(written, "\\u{:04x}", u32::from(c)),
        }
    }
    written
}

fn forms(secret: &str) -> Vec<String> {
    let hex = base16ct::upper::encode_string(secret.as_bytes());
    let percent = utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string();
    let pair = STANDARD.encode(format!("ci:{secret}"));
    vec![secret.to_owned(), escaped(secret), percent.clone(), percent.to_lowercase(), hex, pair[4..20].to_owned()]
}

fn record(config: &str, file: (&str, &str)) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("gateway.yaml"), config).unwrap();
    std::fs::write(folder.path().join(file.0), file.1).unwrap();
    let (code, written, error) = cli(folder.path(), &["record", "a", "--name", "a"]);
    assert_eq!(code, Some(0), "{error}");
    std::fs::create_dir(folder.path().join("tests")).unwrap();
    std::fs::write(folder.path().join("tests/cases.yaml"), &written).unwrap();
    std::fs::remove_file(folder.path().join(file.0)).unwrap();
    let (code, printed, error) = cli(folder.path(), &["test"]);
    assert_eq!(code, Some(0), "what was recorded cannot be played: {printed}{error}{written}");
    written
}

fn config(http: &Value) -> String {
    let routes = json!([{"name": "a", "backend": {"http": http}}]);
    format!("auth: {{ tokens: [ {{ name: a, env: NOT_SET }} ] }}\nroutes: {routes}\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn no_form_of_a_bearer_token_is_recorded() {
    let all = forms(TOKEN);
    let (hex, percent, pair) = (all[4].clone(), all[2].clone(), STANDARD.encode(format!("ci:{TOKEN}")));
    let source = Upstream::start(move |_| {
        let body = format!(
            r#"[{{"name":"a","said":"{}","pair":"{pair}","url":"https://x.example/?t={percent}","html":"{}"}}]"#,
            escaped(TOKEN),
            TOKEN.replace('&', "&amp;")
        );
        vec![Step::Send(response(
            200,
            &format!("Content-Type: application/json\r\nX-Cursor: {hex}\r\nETag: \"{percent}\""),
            &body,
        ))]
    })
    .await;
    let http = json!({
        "url": format!("http://{}/{{{{ params.x }}}}", source.address),
        "credential": {"bearer": {"file": "token"}},
        "parameters": "body.map(i, {'name': i.name, 'said': i.said, 'cursor': headers['x-cursor']})",
    });
    let config = config(&http).replace("{{ params.x }}", "list");
    let written = record(&config, ("token", TOKEN));
    for form in all {
        assert!(!written.contains(&form), "{form}: {written}");
    }
    assert!(written.contains("name: a") && written.contains("[redacted]"), "{written}");
}

/// A token that was bought for this very request, and a secret that is a number.
#[tokio::test(flavor = "multi_thread")]
async fn no_form_of_an_issued_token_is_recorded() {
    let source = Upstream::start(|request| {
        let body = if request.target.starts_with("/token") {
            format!(r#"{{"access_token":"{}","token_type":"Bearer","expires_in":60,"of":{PIN}}}"#, escaped(ISSUED))
        } else {
            format!(
                r#"[{{"name":"a","pin":{PIN},"said":"{}","list":["{}"]}}]"#,
                escaped(ISSUED),
                escaped(&format!("{{\"t\":\"{}\"}}", escaped(ISSUED)))
            )
        };
        vec![Step::Send(json_response(body))]
    })
    .await;
    let url = format!("http://{}", source.address);
    let oauth2 = json!({"tokenUrl": format!("{url}/token"), "clientId": "me", "clientSecret": {"file": "pin"}});
    let http = json!({
        "url": format!("{url}/list"), "credential": {"oauth2": oauth2},
        "parameters": "body.map(i, {'name': i.name, 'said': i.said, 'pin': i.pin})",
    });
    let written = record(&config(&http), ("pin", PIN));
    for form in forms(ISSUED).into_iter().chain([PIN.to_owned(), escaped(&escaped(ISSUED))]) {
        assert!(!written.contains(&form), "{form}: {written}");
    }
}
