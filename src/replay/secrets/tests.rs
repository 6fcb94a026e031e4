//! Every form in which a secret was once recorded, and similar texts that must stay.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use serde_json::json;

use super::*;
use crate::{
    config::{Decoded, Report},
    replay::{
        case::CaseFile,
        read::checked,
        record::{Recorded, Recorder},
        update::json_line,
    },
};
use domain::{
    clock::Timestamp,
    replay::{HttpReply, Sources as _},
};

const TOKEN: &str = "ghp_0123456789abcdefABCD";
const PEM: &str = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAplanted0\nplanted1/x==\n-----END RSA PRIVATE KEY-----";

/// Texts without a name, each with the secret in it.
fn texts() -> Vec<(String, &'static str)> {
    let mut texts: Vec<(String, &str)> = [
        "use {} now",
        "({})",
        "a,{}",
        "token=\"{}\"",
        "[{}]",
        "<{}>",
        "a;{};b",
        "x&{}#y",
        "text%3D{}",
        "\\n{}\\n",
        "https://example.com/{}/x",
        "prefix{}0123456789012345678",
    ]
    .map(|text| (text.replace("{}", TOKEN), TOKEN))
    .into();
    texts.extend(
        [
            "postgres://user:hunter2pw@db:5432/x",
            "redis://:hunter2pw@cache",
            "amqp://u:hunter2pw@mq/vhost",
            "mongodb+srv://u:a/b?hunter2pw@h/x",
            "https://hunter2pw@example.com/x",
            "https://a.example.com/,https://u:hunter2pw@b.example.com/",
            "redis://a:x1@h,redis://b:hunter2pw@i",
            "https:\\/\\/u:hunter2pw@b.example.com\\/",
            "https://example.com/cb#access_token=hunter2pw&state=7",
            "https://example.com/cb#state=7&access_token=hunter2pw",
            "access_token=hunter2pw&expires=7",
            "grant_type=x&client_secret=hunter2pw&code=7",
            "https://example.com/?code=hunter2pw",
            "https://example.com/?a=b&key=hunter2pw",
            "https://example.com/?X-Amz-Signature=hunter2pw",
            "password: hunter2pw",
            "user: u\npassword: hunter2pw with words\nhost: h",
            "password: |\n  hunter2pw\n",
            "the password: hunter2pw is wrong",
            "the token: hunter2pw is wrong",
            "PGPASSWORD=hunter2pw psql",
            "export API_KEY='hunter2pw and words'",
            "curl --password=hunter2pw x",
            "curl --password hunter2pw x",
            "curl -H 'Authorization: Bearer hunter2pw' x",
            "curl -H \"PRIVATE-TOKEN: hunter2pw\" x",
            "Authorization: Token hunter2pw",
            "Cookie: a=b; sid=hunter2pw; c=d",
            "Server=h;Password=a,b;hunter2pw;Database=d",
            "DefaultEndpointsProtocol=https;AccountKey=hunter2pw==;EndpointSuffix=x",
            "{'password': 'hunter2pw'}",
            "note \"apiKey\" => \"hunter2pw\"",
            "note {\\\"secret\\\": \\\"hunter2pw\\\"}",
            "<user>u</user><password>hunter2pw</password>",
            "sid=hunter2pw; path=/",
            "said Cookie: a=b; sid=hunter2pw and more",
            "password[]=hunter2pw",
            "password:\n- hunter2pw",
            "curl -u 'ci:hunter2pw' https://h",
            "password: ${X}hunter2pw",
            "//registry.npmjs.org/:_authToken=hunter2pw",
            "dbPass=hunter2pw",
            "{\"a\": 1}\n{\"p\\u0061ssword\": \"hunter2pw\"}\n",
            " {\"secret\": \"hunter2pw\"}",
            "{\"token\":\"hunter2pw\",\"token\":\"\"}",
            "{\"t\\u006fken\":\"hunter2pw\",\"token\":\"\"}",
            "{\"password\":12345678,\"x\":\"hunter2pw\",\"x\":\"\",\"password\":\"hunter2pw\"}",
        ]
        .map(|text| (text.to_owned(), "hunter2pw")),
    );
    texts.extend([
        (PEM.to_owned(), "planted1"),
        (format!("key: {PEM}"), "planted0"),
        (format!("a\n{PEM}\nb").replace('\n', "\\n"), "planted1"),
        (PEM.replace("-----END RSA PRIVATE KEY-----", ""), "planted1"),
        ("it said Bearer 0123456789abcdef".to_owned(), "0123456789abcdef"),
        ("at AKIA0123456789ABCDEF.".to_owned(), "AKIA0123456789ABCDEF"),
        ("(xoxb-0123456789-abcdef)".to_owned(), "xoxb-0123456789-abcdef"),
        ("id=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln".to_owned(), "eyJzdWIiOiIxIn0"),
    ]);
    texts
}

/// Texts in which the secret is in base64.
fn encoded() -> Vec<(String, String)> {
    let inner =
        ["Authorization: Bearer ghp_0123456789abcdefABCD", "password=hunter2pw", "postgres://u:hunter2pw@h/x", PEM];
    let mut texts = Vec::new();
    for inner in inner {
        let encoded = STANDARD.encode(inner);
        for text in [
            encoded.clone(),
            format!("h={}.", encoded.trim_end_matches('=')),
            format!("/v1/{}/x", encoded.replace('+', "-")),
        ] {
            texts.push((text, encoded.trim_end_matches('=')[4..].to_owned()));
        }
    }
    let pair = STANDARD.encode("user:pw").trim_end_matches('=').to_owned();
    texts.push((format!("Basic {pair}"), pair.clone()));
    texts.push((format!("x {{\"auth\": \"{pair}\"}}"), pair));
    texts
}

/// Values, whose names say that they are secrets, or that are secrets by their form.
fn values() -> Vec<(Value, &'static str)> {
    vec![
        (json!({"password": 12_345_678}), "12345678"),
        (json!({"a": [{"passphrase": "hunter2pw"}]}), "hunter2pw"),
        (json!({"pass": "hunter2pw"}), "hunter2pw"),
        (json!({"DB_PWD": "hunter2pw"}), "hunter2pw"),
        (json!({"secretKey": "hunter2pw"}), "hunter2pw"),
        (json!({"AccountKey": "hunter2pw"}), "hunter2pw"),
        (json!({"mySecretValue": "hunter2pw"}), "hunter2pw"),
        (json!({"sid": "hunter2pw"}), "hunter2pw"),
        (json!({"X-Session": "hunter2pw"}), "hunter2pw"),
        (json!({"tokens": ["hunter2pw"]}), "hunter2pw"),
        (json!({"secret": {"value": "hunter2pw"}}), "hunter2pw"),
        (json!({"name": "DB_PASSWORD", "value": "hunter2pw"}), "hunter2pw"),
        (json!({"auths": {"ghcr.io": {"auth": "dXNlcjpodW50ZXIycHc="}}}), "dXNlcjpodW50ZXIycHc"),
        (json!({"token": "[redacted] hunter2pw"}), "hunter2pw"),
        (json!({"credentials": "{\"a\": \"hunter2pw\"}"}), "hunter2pw"),
        (json!({"ghp_0123456789abcdefABCD": 1}), TOKEN),
        (json!({"https://u:hunter2pw@h/": {"a": 1}}), "hunter2pw"),
    ]
}

fn all() -> Vec<(Value, String)> {
    let texts = texts().into_iter().map(|(text, secret)| (Value::from(text), secret.to_owned()));
    let encoded = encoded().into_iter().map(|(text, secret)| (Value::from(text), secret));
    let values = values().into_iter().map(|(value, secret)| (value, secret.to_owned()));
    texts.chain(encoded).chain(values).collect()
}

/// What is wrong with a file of cases: its problems, and the report with lines of the file.
fn read(file: String) -> Result<(), (String, String)> {
    let shown = |report: Report| (report.lines().join("\n"), report.to_string());
    let decoded = Decoded::<CaseFile>::parse("cases.yaml", file).map_err(shown)?;
    checked(decoded).map(drop).map_err(shown)
}

#[test]
fn no_form_of_a_secret_is_left() {
    assert!(all().len() > 80);
    for (value, secret) in all() {
        let once = redact(value.clone(), "", &Secrets::default());
        assert!(!once.to_string().contains(&secret), "{value} became {once}");
        assert_eq!(redact(once.clone(), "", &Secrets::default()), once, "a redacted text is not a secret");
    }
}

/// Each place of a file of cases, with each form.
#[test]
fn a_file_with_any_form_is_refused() {
    for (value, secret) in all() {
        let file = format!(
            "cases:\n  - name: a\n    route: x\n    replies:\n      - request: GET https://h/\n        body: {}\n    expect: {{ parameters: [] }}\n",
            json_line(&value)
        );
        let (why, _) = read(file).expect_err(&secret);
        assert!(why.contains("seems to hold a secret") && !why.contains(&secret), "{why}");
    }
    for (place, at) in [
        ("name: ghp_0123456789abcdefABCD", "cases[0].name"),
        ("name: a\n    applicationSet: (ghp_0123456789abcdefABCD)", "cases[0].applicationSet"),
        ("name: a\n    applicationSetNamespace: a,ghp_0123456789abcdefABCD", "cases[0].applicationSetNamespace"),
        ("name: a\n    parameters: { password: 12345678 }", "cases[0].parameters.password"),
        ("name: a\n    expect: { error: held, message: \"password: hunter2pw\" }", "cases[0].expect.message"),
        ("name: a\n    expect: { parameters: [ { pass: hunter2pw } ] }", "cases[0].expect.parameters[0].pass"),
        ("name: a\n    replies: [ { request: \"GET https://h/?code=hunter2pw\" } ]", "cases[0].replies[0].request"),
        ("name: a\n    replies: [ { script: \"x --password=hunter2pw\", items: [] } ]", "cases[0].replies[0].script"),
        (
            "name: a\n    replies: [ { request: \"GET https://h/\", headers: { X-Session: hunter2pw } } ]",
            "cases[0].replies[0].headers.X-Session",
        ),
    ] {
        let (why, shown) = read(format!("cases:\n  - {place}\n")).unwrap_err();
        assert!(why.contains(&format!("{at}: it seems to hold a secret")), "{place}: {why}");
        assert!(!["hunter2pw", "12345678", TOKEN].iter().any(|secret| shown.contains(secret)), "{shown}");
    }
}

#[test]
fn a_recorded_case_holds_no_form_of_a_secret_and_can_be_read() {
    for (value, secret) in all() {
        let recorder = Recorder::new(std::iter::empty());
        let mut headers = HeaderMap::new();
        for name in ["x-session", "x-auth", "x-key", "x-cookies", "set-cookie"] {
            headers.insert(name, "hunter2pw".parse().unwrap());
        }
        headers.insert("x-next-page", "2".parse().unwrap());
        let body = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let reply = HttpReply { status: StatusCode::OK, headers, body: Bytes::from(body) };
        let url = "https://h/?key=hunter2pw".parse().unwrap();
        recorder.note_reply(&Method::GET, &url, Ok(reply), &Secrets::default());
        let set = json!({"a": value}).as_object().cloned().unwrap();
        let answer =
            Answered::Sets { sets: vec![set.clone()], cache: crate::replay::case::CacheState::Miss, because: None };
        let question = Recorded {
            name: "a",
            route: Some("x"),
            application_set: TOKEN,
            parameters: &set,
            now: Timestamp(0),
            answer: &answer,
        };
        let written = recorder.write(&question, &Secrets::default()).unwrap();
        assert!(
            !written.contains(&secret) && !written.contains("hunter2pw") && !written.contains(TOKEN),
            "{value}: {written}"
        );
        assert!(written.contains("headers: { x-next-page: \"2\" }"), "{written}");
        read(format!("cases:\n{written}")).unwrap();
    }
}

/// Similar texts.
#[test]
fn other_texts_stay() {
    for text in [
        "sha256:764e326368aeb62e3f85b1a40246b2ea58ca65a063ebf93f12a5c83f920f090f",
        "registry.example.com:5000/org/app@sha256:764e326368aeb62e3f85b1a40246b2ea58ca65a063ebf93f12a5c83f920f090f",
        "ghcr.io/org/auth-token:v1.2.3",
        "oci://registry:5000/org/app@sha256:764e326368aeb62e3f85b1a40246b2ea58ca65a063ebf93f12a5c83f920f090f",
        "auth-token:latest",
        "da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "W/\"da39a3ee5e6b4b0d3255bfef95601890afd80709da39a3ee5e6b4b0d3255bfef\"",
        "123e4567-e89b-12d3-a456-426614174000",
        "ssh://git@github.com/org/app.git",
        "git@github.com:org/app.git",
        "https://registry.example.com/v2/org/app/manifests/pr-7?page=2&per_page=100",
        "<https://api.example.com/items?after=abc123&page_token=abcdef123>; rel=\"next\"",
        "Bearer realm=\"https://auth.example.com/token\",service=\"registry\",scope=\"repository:org/app:pull\"",
        "Basic realm=\"example\"",
        "Basic authentication is not possible here",
        "token expired: ask again",
        "the token: expired or revoked",
        "a bearer token is needed",
        "curl -H \"Authorization: Bearer $GITLAB_TOKEN\" --password ${PASSWORD} --token-file /run/token x",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "npm_config_registry=https://registry.npmjs.org",
        "application/vnd.docker.distribution.manifest.v2+json",
        "refs/heads/feature/some-very-long-branch-name-with-words",
        "2026-01-31T12:00:00Z",
        "max-age=60, private",
        "{\"a\":1,\"a\":2}",
        "{ \"a\": 1 }",
        "$argon2id is a name",
        "password=$(cat /run/password) x",
        "docker run -u 1000:1000 image",
        "curl -u ci:$PASSWORD https://h",
        "secret:\n  name: tls",
        "kubectl get secret app -o jsonpath={.data.password}",
        "https://example.com/?key=abc&code=404&sort=key",
        "http://h:8080/a@b",
        "token_type=bearer",
        "",
    ] {
        assert_eq!(redact_text(text, "", &Secrets::default()), text);
    }
    for value in [
        json!({"secretName": "tls", "imagePullSecrets": ["regcred"], "existingSecret": "db", "secretRef": "x"}),
        json!({"nextPageToken": "abc", "passed": 1234, "pass": 7, "tokens": 4096, "auth": "oidc", "Sid": "AllowRead"}),
        json!({"token": "", "password": null, "useToken": true, "secret": "[redacted]", "key": "value-1", "code": 404}),
        json!({"commit": "da39a3ee5e6b4b0d3255bfef95601890afd80709", "number": 12_345_678, "key": {"data": "x"}}),
        json!({"name": "LOG_LEVEL", "value": "debug"}),
    ] {
        assert_eq!(redact(value.clone(), "", &Secrets::default()), value);
    }
}

#[test]
fn the_rest_of_a_text_stays() {
    for (name, text, expected) in [
        ("auth", "Bearer 0123456789abcdef", "[redacted]"),
        ("", "it said Bearer 0123456789abcdef.", "it said Bearer [redacted]"),
        ("password", "hunter2", "[redacted]"),
        ("", "use ghp_0123456789abcdef now\n", "use [redacted] now\n"),
        (
            "link",
            "<https://a/b?access_token=abc&page=2>; rel=\"next\"",
            "<https://a/b?access_token=%5Bredacted%5D&page=2>; rel=\"next\"",
        ),
        (
            "location",
            "https://u:p@s3.example.com/x?X-Amz-Signature=00ff",
            "https://%5Bredacted%5D@s3.example.com/x?X-Amz-Signature=%5Bredacted%5D",
        ),
        ("", r#"{ "a": { "token": "abc" } }"#, r#"{"a":{"token":"[redacted]"}}"#),
        ("", "GET https://a/b?sig=abc", "GET https://a/b?sig=%5Bredacted%5D"),
        ("", "token=\"abc def\", host=h", "token=\"[redacted]\", host=h"),
        ("", "password=abc, host=h", "password=[redacted], host=h"),
    ] {
        assert_eq!(redact_text(text, name, &Secrets::default()), expected);
    }
}
