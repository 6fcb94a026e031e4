use http::{HeaderMap, Method};
use reqwest::Url;
use serde::Deserialize;
use tokio::time::Instant;

use super::*;
use domain::secret::Secret;

/// AWS's own Signature Version 4 test suite (Apache License 2.0), one case a line.
const SUITE: &str = include_str!("../../../facts/aws_suite.jsonl");
/// Requests that botocore signed; made by `tests/clouds/facts`. Of each signature the first 16 characters.
const BOTOCORE: &str = include_str!("../../../facts/signatures.tsv");

#[derive(Deserialize)]
struct Case {
    name: String,
    method: String,
    path: String,
    query: String,
    headers: Vec<(String, String)>,
    body: String,
    authorization: String,
}

fn credentials(id: &str, secret: &str) -> AwsCredentials {
    AwsCredentials { key_id: id.to_owned(), secret_key: Secret::from(secret.to_owned()), session_token: None }
}

#[test]
fn signatures_are_those_of_the_suite() {
    let credentials = credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
    let mut count = 0;
    for line in SUITE.lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        let (_, signed) = case.authorization.split_once("SignedHeaders=").unwrap();
        let signed: Vec<&str> = signed.split_once(',').unwrap().0.split(';').collect();
        let is_signed = |name: &str| signed.contains(&name.to_ascii_lowercase().as_str());
        let parts = SignedParts {
            method: &case.method,
            path: &case.path,
            query: &case.query,
            headers: case.headers.into_iter().filter(|(name, _)| is_signed(name)).collect(),
            body_hash: hash(case.body.as_bytes()),
        };
        let scope = Scope { service: "service", region: "us-east-1" };
        assert_eq!(authorization(&parts, &credentials, scope, "20150830T123600Z"), case.authorization, "{}", case.name);
        count += 1;
    }
    assert_eq!(count, 31);
}

#[test]
fn signatures_are_those_of_botocore() {
    let mut count = 0;
    for line in BOTOCORE.lines() {
        let fields: [&str; 11] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let [method, path, query, headers, body, service, region, key, secret, date, signature] = fields;
        let headers = headers.split('\u{1f}').map(|header| header.split_once('\u{1e}').unwrap());
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let parts = SignedParts { method, path, query, headers, body_hash: hash(body.as_bytes()) };
        let made = authorization(&parts, &credentials(key, secret), Scope { service, region }, date);
        let (_, made) = made.split_once("Signature=").unwrap();
        assert!(made.starts_with(signature), "{line}");
        count += 1;
    }
    assert_eq!(count, 2000);
}

/// The request that is sent has one reading only: its path and query are encoded as the signature has them.
#[tokio::test]
async fn a_call_is_sent_as_it_was_signed() {
    let url = Url::parse("https://eks.eu-central-1.amazonaws.com/a!b//c%2Fd/?z=1+2&a=(x)&b").unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("accept", HeaderValue::from_static("*/*"));
    let call = Call { headers, method: Method::POST, body: Some("{}".into()), ..Call::get(url, 1, Instant::now()) };
    let token = Some(Secret::from("token".to_owned()));
    let credentials = AwsCredentials { session_token: token, ..credentials("AKID", "secret") };
    let scope = Scope { service: "eks", region: "eu-central-1" };
    let signed = sign(call, &credentials, scope, Timestamp(1_440_938_160_000)).unwrap();
    let expected = "https://eks.eu-central-1.amazonaws.com/a%21b//c%2Fd/?a=%28x%29&b=&z=1%202";
    assert_eq!(signed.url.as_str(), expected);
    assert_eq!(signed.headers["x-amz-date"], "20150830T123600Z");
    assert!(signed.headers["x-amz-security-token"].is_sensitive() && signed.headers["authorization"].is_sensitive());
    let value = signed.headers["authorization"].to_str().unwrap();
    assert!(value.contains("SignedHeaders=host;x-amz-date;x-amz-security-token, "), "{value}");
    // Signed again after a renewal: the old token is gone.
    let bare = AwsCredentials { session_token: None, ..credentials };
    let again = sign(signed, &bare, scope, Timestamp(1_440_938_160_000)).unwrap();
    assert!(!again.headers.contains_key("x-amz-security-token") && again.url.as_str() == expected);
}
