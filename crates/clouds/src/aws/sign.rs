//! Signature Version 4. Source: AWS, "Signature Version 4 signing process"; checked against AWS's own test suite and botocore.

use aws_lc_rs::hmac;
use base16ct::lower::encode_string;
use http::HeaderValue;
use sha2::{Digest as _, Sha256};

use super::AwsCredentials;
use domain::{clock::Timestamp, error::BackendError};
use outbound::Call;

/// The headers that are signed, beside those that begin with `x-amz-`. A proxy may change others.
const SIGNED: [&str; 2] = ["content-type", "host"];

/// What a signature is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'a> {
    /// The service's name in signatures, such as `eks`.
    pub service: &'a str,
    /// The region.
    pub region: &'a str,
}

/// The parts of a request that are signed.
#[derive(Debug)]
pub(crate) struct SignedParts<'a> {
    /// The method.
    pub method: &'a str,
    /// The path as it is sent.
    pub path: &'a str,
    /// The query as it is sent.
    pub query: &'a str,
    /// Names and values of the headers to sign.
    pub headers: Vec<(String, String)>,
    /// The hash of the body, in hexadecimal.
    pub body_hash: String,
}

/// `call` with the signature of `credentials`, made at `now`.
///
/// # Errors
/// When a header cannot carry a value.
pub(crate) fn sign(
    mut call: Call,
    credentials: &AwsCredentials,
    scope: Scope<'_>,
    now: Timestamp,
) -> Result<Call, BackendError> {
    // The signature is of a second: no later request has the headers of this one, so a conditional one never comes.
    call.revalidate = false;
    // The server signs what it decodes. With one encoding for all characters, it cannot decode something else than was meant.
    let path = encoded_path(call.url.path());
    call.url.set_path(&path);
    let query = canonical_query(&form_spaces(call.url.query().unwrap_or_default()));
    call.url.set_query(Some(&*query).filter(|query| !query.is_empty()));
    let date = date(now);
    let body_hash = hash(call.body.as_deref().unwrap_or_default());
    let invalid = |_| BackendError::invalid_output("the credential holds characters that no header can carry");
    call.headers.insert("x-amz-date", HeaderValue::try_from(&date).map_err(invalid)?);
    if scope.service == "s3" {
        call.headers.insert("x-amz-content-sha256", HeaderValue::try_from(&body_hash).map_err(invalid)?);
    }
    call.headers.remove("x-amz-security-token");
    if let Some(token) = &credentials.session_token {
        let mut token = HeaderValue::try_from(token.expose()).map_err(invalid)?;
        token.set_sensitive(true);
        call.headers.insert("x-amz-security-token", token);
    }
    let signed = |name: &str| SIGNED.contains(&name) || name.starts_with("x-amz-");
    let headers = call.headers.iter().filter(|(name, _)| signed(name.as_str()));
    let mut headers: Vec<_> = headers
        .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    headers.push(("host".to_owned(), call.url[url::Position::BeforeHost..url::Position::AfterPort].to_owned()));
    let parts = SignedParts { method: call.method.as_str(), path: &path, query: &query, headers, body_hash };
    let mut value = HeaderValue::try_from(authorization(&parts, credentials, scope, &date)).map_err(invalid)?;
    value.set_sensitive(true);
    call.headers.insert(http::header::AUTHORIZATION, value);
    Ok(call)
}

/// The value of the header `Authorization` for `parts`, made at `date` (`20150830T123600Z`).
pub(crate) fn authorization(
    parts: &SignedParts<'_>,
    credentials: &AwsCredentials,
    Scope { service, region }: Scope<'_>,
    date: &str,
) -> String {
    let (canonical, signed_headers) = canonical_request(parts, service);
    let scope = Scope { service, region };
    let signature = signature(&canonical, credentials, scope, date);
    let (id, place) = (&credentials.key_id, scope.place(date));
    format!("AWS4-HMAC-SHA256 Credential={id}/{place}, SignedHeaders={signed_headers}, Signature={signature}")
}

/// The query of a `GET` of `path` with `fields` and the signature of `credentials`, which covers `headers` too. Made at `now`.
pub(crate) fn presigned(
    path: &str,
    fields: &[(&str, &str)],
    headers: Vec<(String, String)>,
    credentials: &AwsCredentials,
    scope: Scope<'_>,
    now: Timestamp,
) -> String {
    let date = date(now);
    let mut names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    let (names, credential) = (names.join(";"), format!("{}/{}", credentials.key_id, scope.place(&date)));
    let own = [
        ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
        ("X-Amz-Credential", &*credential),
        ("X-Amz-Date", &*date),
        ("X-Amz-SignedHeaders", &*names),
    ];
    let token = credentials.session_token.as_ref().map(|token| ("X-Amz-Security-Token", token.expose()));
    let all = fields.iter().copied().chain(own).chain(token);
    let pairs = all.map(|(name, value)| format!("{}={}", encoded(name.as_bytes()), encoded(value.as_bytes())));
    let query = canonical_query(&pairs.collect::<Vec<_>>().join("&"));
    let parts = SignedParts { method: "GET", path, query: &query, headers, body_hash: hash(b"") };
    let (canonical, _) = canonical_request(&parts, scope.service);
    format!("{query}&X-Amz-Signature={}", signature(&canonical, credentials, scope, &date))
}

/// The signature of the canonical request `canonical`.
fn signature(canonical: &str, credentials: &AwsCredentials, scope: Scope<'_>, date: &str) -> String {
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{}\n{}", scope.place(date), hash(canonical.as_bytes()));
    let first = format!("AWS4{}", credentials.secret_key.expose());
    let parts = [day(date), scope.region, scope.service, "aws4_request"];
    let key = parts.iter().fold(first.into_bytes(), |key, part| mac(&key, part.as_bytes()));
    encode_string(&mac(&key, text.as_bytes()))
}

impl Scope<'_> {
    /// The scope on the day of `date`, as signatures name it.
    fn place(&self, date: &str) -> String {
        format!("{}/{}/{}/aws4_request", day(date), self.region, self.service)
    }
}

fn day(date: &str) -> &str {
    date.split('T').next().unwrap_or(date)
}

/// The canonical request, and the list of its headers.
fn canonical_request(parts: &SignedParts<'_>, service: &str) -> (String, String) {
    let mut headers: Vec<(String, String)> = Vec::new();
    let mut sorted: Vec<_> = parts.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
    // Stable: the values of one name stay in their order.
    sorted.sort_by(|(one, _), (two, _)| one.cmp(two));
    for (name, value) in sorted {
        let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
        match headers.last_mut().filter(|(last, _)| *last == name) {
            Some((_, values)) => *values = format!("{values},{value}"),
            None => headers.push((name, value)),
        }
    }
    let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
    let names = names.join(";");
    let lines: Vec<String> = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let lines = lines.concat();
    // Amazon S3 takes each path as it is. All others encode what is sent once more.
    let path = if service == "s3" { parts.path.to_owned() } else { canonical_path(parts.path) };
    let query = canonical_query(parts.query);
    (format!("{}\n{path}\n{query}\n{lines}\n{names}\n{}", parts.method, parts.body_hash), names)
}

/// The path without empty segments and dots, encoded.
fn canonical_path(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let end = if path.ends_with('/') && !segments.is_empty() { "/" } else { "" };
    let joined = segments.iter().map(|segment| encoded(segment.as_bytes())).collect::<Vec<_>>().join("/");
    format!("/{joined}{end}")
}

/// `path`, with each segment in the one encoding that all servers decode alike.
fn encoded_path(path: &str) -> String {
    path.split('/').map(|segment| encoded(&decoded(segment))).collect::<Vec<_>>().join("/")
}

/// `query` with its names and values in one encoding, sorted.
fn canonical_query(query: &str) -> String {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let mut pairs: Vec<(String, String)> = pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (encoded(&decoded(name)), encoded(&decoded(value))))
        .collect();
    pairs.sort();
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

/// `query`, whose `+` stand for spaces, with `%20`.
fn form_spaces(query: &str) -> String {
    query.replace('+', "%20")
}

/// `text` with everything but unreserved characters encoded (RFC 3986, section 2.3).
fn encoded(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(*byte)),
            byte => {
                out.push('%');
                out.push_str(&base16ct::upper::encode_string(&[*byte]));
            }
        }
    }
    out
}

/// `text` without percent encoding. What is not encoded well stays as it is.
fn decoded(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *first == b'%');
        let byte = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        if let Some(byte) = byte.filter(|_| after[0] != b'+') {
            out.push(byte);
            rest = &after[2..];
        } else {
            out.push(*first);
            rest = after;
        }
    }
    out
}

/// `now` as `20150830T123600Z`.
fn date(now: Timestamp) -> String {
    now.to_date().replace(['-', ':'], "")
}

/// The SHA-256 of `bytes`, in hexadecimal.
pub(crate) fn hash(bytes: &[u8]) -> String {
    encode_string(&Sha256::digest(bytes))
}

fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref().to_vec()
}

#[cfg(test)]
mod tests;
