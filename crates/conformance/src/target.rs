//! The plugin server under test. It is called as Argo CD calls it: once, without retries, and within bounds.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use reqwest::Url;
use tokio::time::Instant;

use super::evaluate::{CUT, Verdict, evaluate_part};
use domain::{
    clock::SystemClock,
    secret::{Secret, Secrets},
};
use outbound::{Call, ClientOptions, Ended, HttpClient, Observed, Outbound};

/// After this time Argo CD gives up, unless the plugin's ConfigMap sets `requestTimeout`.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// The largest answer that is read, in bytes. A plugin that floods gets no further.
const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;
/// The most values in an answer that is evaluated. Each of them takes hundreds of bytes of memory.
const MAX_VALUES: usize = 100_000;
/// The error for an answer beyond these limits.
const BEYOND: &str = "the answer has more than 4 MiB or 100000 values, which is more than the suite evaluates";
/// Go's error for a body that does not end in time.
const LATE: &str = "context deadline exceeded";

/// A plugin server.
pub struct Target {
    url: Url,
    token: Option<Secret>,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// The ApplicationSet of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requester {
    /// Argo CD, with the right token.
    ArgoCd,
    /// A caller without a token.
    NoToken,
    /// A caller with a wrong token.
    WrongToken,
}

/// A reply that is not evaluated yet.
pub enum Reply {
    /// It came, at least in part.
    Came(Observed),
    /// There is none.
    Failed {
        /// Why there is none.
        why: String,
        /// Whether the time was over.
        is_late: bool,
    },
}

/// A reply, and Argo CD's reading of it.
#[derive(Debug)]
pub struct Answered {
    /// Argo CD's reading of it.
    pub verdict: Verdict,
    /// Its status; `None` if there was no reply.
    pub status: Option<u16>,
    /// Whether it was not complete in time.
    pub is_late: bool,
    /// Whether it is a success that is too large to be evaluated.
    pub(crate) is_beyond: bool,
    /// Whether it broke off.
    pub(crate) is_broken: bool,
    headers: HeaderMap,
    /// Its body, as far as it came.
    pub body: Bytes,
}

impl Answered {
    /// Whether the reply has its length or an end.
    pub fn has_end(&self) -> bool {
        let is_chunked = self.headers.contains_key(header::TRANSFER_ENCODING);
        is_chunked || self.headers.contains_key(header::CONTENT_LENGTH)
    }

    /// Whether Argo CD, like any client, takes the status for a success.
    pub fn is_success(&self) -> bool {
        self.status.is_some_and(|status| (200..300).contains(&status))
    }
}

impl Reply {
    /// Evaluates the reply. Its limits bound the work.
    pub fn evaluate(self) -> Answered {
        let Observed { status, headers, body, ended } = match self {
            Self::Came(observed) => observed,
            Self::Failed { why, is_late } => {
                let verdict = Verdict::Error { status: None, condition: why };
                let (headers, body) = (HeaderMap::new(), Bytes::new());
                return Answered { verdict, status: None, is_late, is_beyond: false, is_broken: false, headers, body };
            }
        };
        let body = if values(&body) > MAX_VALUES { None } else { Some(body) };
        let broken = match (&body, ended) {
            (None, _) | (_, Some(Ended::TooLarge)) => Some(BEYOND),
            (_, Some(Ended::Late)) => Some(LATE),
            (_, Some(Ended::Broken)) => Some(CUT),
            (_, None) => None,
        };
        let text = |(name, value): (&HeaderName, &HeaderValue)| {
            (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let texts: Vec<(String, String)> = headers.iter().map(text).collect();
        let body = body.unwrap_or_default();
        let verdict = evaluate_part(status.as_u16(), &texts, &body, broken);
        let is_error = matches!(verdict, Verdict::Error { .. });
        Answered {
            verdict,
            status: Some(status.as_u16()),
            is_late: ended == Some(Ended::Late),
            is_beyond: is_error && status.is_success() && broken == Some(BEYOND),
            is_broken: ended == Some(Ended::Broken),
            headers,
            body,
        }
    }
}

/// About how many values the first JSON document of `bytes` has. Costs nothing but time, unlike reading it.
fn values(bytes: &[u8]) -> usize {
    let (mut count, mut depth, mut is_text, mut is_escaped) = (0, 0_usize, false, false);
    for byte in bytes {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            _ if is_text => {}
            b'{' | b'[' => (count, depth) = (count + 1, depth + 1),
            b',' => count += 1,
            b'}' | b']' if depth <= 1 => break,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
    }
    count
}

impl Target {
    /// The plugin at `base`, which is a ConfigMap's `baseUrl`.
    ///
    /// # Errors
    /// When `base` cannot have a path.
    pub fn new(base: &Url, token: Option<Secret>, timeout: Duration) -> anyhow::Result<Self> {
        let mut url = base.clone();
        let mut path = url.path_segments_mut().map_err(|()| anyhow::anyhow!("{base} cannot have a path"))?;
        path.pop_if_empty().extend(["api", "v1", "getparams.execute"]);
        drop(path);
        Ok(Self { url, token, timeout })
    }

    /// Whether the plugin needs a token.
    pub(crate) const fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// The secrets that a reply may repeat, and a report must not. Some JSON writers escape each `/`.
    pub fn secrets(&self) -> Secrets {
        let escaped = self.token.iter().map(|token| Secret::from(token.expose().replace('/', "\\/")));
        self.token.iter().cloned().chain(escaped).collect()
    }

    /// Prepares a question. That takes time, which must not count as the plugin's.
    ///
    /// # Errors
    /// When this side cannot ask, for example with a token that no header can carry.
    pub fn prepare(&self, requester: Requester, body: String) -> anyhow::Result<Question> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // Argo CD accepts gzip, and unpacks it. The verdict is the same without it.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let token = self.token.as_ref().map(|token| format!("Bearer {}", token.expose()));
        let authorization = match requester {
            Requester::ArgoCd => token,
            Requester::NoToken => None,
            Requester::WrongToken => Some("Bearer a-wrong-token-of-the-conformance-suite".to_owned()),
        };
        if let Some(authorization) = authorization {
            let mut value = HeaderValue::try_from(authorization)?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        // A client of its own for each question, and so a connection of its own.
        let client =
            Outbound::new(Arc::new(SystemClock)).client(ClientOptions::default()).map_err(anyhow::Error::msg)?;
        client.prepare().map_err(|error| anyhow::Error::msg(error.message))?;
        let call = Call {
            method: Method::POST,
            headers,
            body: Some(body.into()),
            may_repeat: false,
            ..Call::get(self.url.clone(), MAX_BODY_BYTES, Instant::now())
        };
        Ok(Question { client, call, timeout: self.timeout })
    }
}

/// A question that is ready to be sent.
pub struct Question {
    client: Arc<HttpClient>,
    call: Call,
    timeout: Duration,
}

impl Question {
    /// Asks once. The reply is not evaluated yet: that takes time, too.
    pub async fn ask(self) -> Reply {
        let deadline = Instant::now() + self.timeout;
        match self.client.observe(Call { deadline, ..self.call }).await {
            Ok(observed) => Reply::Came(observed),
            Err(error) => Reply::Failed { why: error.message, is_late: Instant::now() >= deadline },
        }
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn evaluate(status: StatusCode, body: impl Into<Bytes>, ended: Option<Ended>) -> Answered {
        Reply::Came(Observed { status, headers: HeaderMap::new(), body: body.into(), ended }).evaluate()
    }

    #[test]
    fn values_are_counted_without_reading_them() {
        for (text, count) in
            [("", 0), ("{}", 1), (r#"{"a":[{},{}],"b":"\\\",{[","c":1}"#, 7), (r#"{"a":1} [1,2,3]"#, 1)]
        {
            assert_eq!(values(text.as_bytes()), count, "{text}");
        }
    }

    #[test]
    fn what_is_too_large_is_not_evaluated() {
        let many = format!(r#"{{"output":{{"parameters":[{}{{}}]}}}}"#, r#"{"a":"b"},"#.repeat(60_000));
        let answered = evaluate(StatusCode::OK, many.clone(), None);
        assert!(
            answered.is_beyond
                && answered.verdict == Verdict::Error { status: Some(200), condition: format!("{BEYOND}: ") }
        );
        assert!(!evaluate(StatusCode::BAD_GATEWAY, many, None).is_beyond, "an error with any body");
        let few = format!(r#"{{"output":{{"parameters":[{}{{}}]}}}}"#, r#"{"a":"b"},"#.repeat(40_000));
        assert!(
            matches!(evaluate(StatusCode::OK, few, None).verdict, Verdict::Parameters(sets) if sets.len() == 40_001)
        );
        // Argo CD reads the first value, and deletes everything.
        let answered = evaluate(StatusCode::OK, "{}   ", Some(Ended::TooLarge));
        assert!(!answered.is_beyond && matches!(answered.verdict, Verdict::AccidentallyEmpty { .. }), "{answered:?}");
    }

    #[test]
    fn a_part_is_evaluated_as_argo_cd_reads_it() {
        for ended in [Ended::Broken, Ended::Late] {
            let is_accident = |body: &'static str| {
                matches!(evaluate(StatusCode::OK, body, Some(ended)).verdict, Verdict::AccidentallyEmpty { .. })
            };
            assert!(is_accident(r#"{"output":{}}"#), "{ended:?}");
            assert!(!is_accident(r#"{"output":{"#), "{ended:?}");
        }
    }
}
