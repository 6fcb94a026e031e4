//! The files of `appset-gateway test`: questions, what the sources reply, and the answer that is expected.

use std::{collections::BTreeMap, time::UNIX_EPOCH};

use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value};

use domain::{clock::Timestamp, document::exact, error::ErrorKind, generator::Parameters, units::HumanDuration};

/// When a case happens, unless it says so itself: 2026-01-01.
const USUAL_TIME: Timestamp = Timestamp(1_767_225_600_000);

/// A file with cases.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CaseFile {
    /// The cases, in the order in which they are played.
    pub(crate) cases: Vec<Case>,
}

/// One question, what the sources reply, and the answer that is expected; then perhaps further steps.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Case {
    /// The name in reports.
    pub(crate) name: String,
    /// The route. Without it, the first route whose `match` accepts the call.
    pub(crate) route: Option<String>,
    /// The name of the ApplicationSet that asks.
    #[serde(default)]
    pub(crate) application_set: String,
    /// Its namespace, if the caller sends it.
    pub(crate) application_set_namespace: Option<String>,
    /// `input.parameters`.
    #[serde(default)]
    #[serde(deserialize_with = "exact::read")]
    pub(crate) parameters: Parameters,
    /// The time of the first step. It stands still.
    #[serde(default = "usual_time", deserialize_with = "time")]
    pub(crate) now: Timestamp,
    /// The replies of the sources.
    #[serde(default)]
    pub(crate) replies: Vec<ReplyConfig>,
    /// The answer.
    pub(crate) expect: Option<Expected>,
    /// The event.
    #[serde(default)]
    pub(crate) then: Vec<Step>,
}

/// A further step: time passes, sources reply something else, and the same question is sent again.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Step {
    /// How much time passes before the question is sent.
    pub(crate) after: Option<HumanDuration>,
    /// Replies from now on. They come before the replies of earlier steps.
    #[serde(default)]
    pub(crate) replies: Vec<ReplyConfig>,
    /// The answer.
    pub(crate) expect: Option<Expected>,
}

/// The reply of a source: to an HTTP request, or in place of a script.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ReplyConfig {
    /// The method and the URL. `*` stands for any text.
    pub(crate) request: Option<String>,
    /// The command of a script, its words separated by spaces. Without a reply a script runs.
    pub(crate) script: Option<String>,
    /// The status. 200 unless set.
    pub(crate) status: Option<u16>,
    /// The headers.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// The body: a text as it is, or a value as JSON.
    #[serde(default, deserialize_with = "present")]
    pub(crate) body: Option<Value>,
    /// The list that the script gives.
    #[serde(default, deserialize_with = "exact::read")]
    pub(crate) items: Option<Vec<Map<String, Value>>>,
    /// Why there is no reply: `connect`, `timeout` or `broken` for a request, any text for a script.
    pub(crate) fails: Option<String>,
    /// The kind of a script's failure. `unavailable` unless set.
    pub(crate) kind: Option<FailureKind>,
}

/// The kind of a script's failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FailureKind {
    /// It failed, which may soon be over.
    Unavailable,
    /// It took too long.
    Timeout,
    /// It asks for a pause.
    Throttled,
    /// It is refused a credential.
    Denied,
    /// The parameters are unusable.
    InvalidInput,
    /// Its output is not a list.
    InvalidOutput,
}

impl From<FailureKind> for ErrorKind {
    fn from(kind: FailureKind) -> Self {
        match kind {
            FailureKind::Unavailable => Self::Unavailable,
            FailureKind::Timeout => Self::Timeout,
            FailureKind::Throttled => Self::Throttled { retry_after: None },
            FailureKind::Denied => Self::Denied,
            FailureKind::InvalidInput => Self::InvalidInput,
            FailureKind::InvalidOutput => Self::InvalidOutput,
        }
    }
}

/// The answer that is expected: parameter sets, or an error.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Expected {
    /// All parameter sets of the answer, in their order.
    #[serde(default, deserialize_with = "exact::read")]
    pub(crate) parameters: Option<Vec<Map<String, Value>>>,
    /// The `code` of the error.
    pub(crate) error: Option<String>,
    /// A part of the error's `message`.
    pub(crate) message: Option<String>,
    /// How the answer was found: `miss` from the source, `hit`, `stale` or `stale_if_error` from the cache. Any unless set.
    pub(crate) cache: Option<CacheState>,
    /// The code of the error because of which an older answer is served, such as `held`. Any or none unless set.
    pub(crate) because: Option<String>,
}

/// How an answer was found, as the header `X-Appset-Gateway-Cache` says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CacheState {
    /// From the source.
    Miss,
    /// From the cache, fresh.
    Hit,
    /// From the cache, while a run in the background renews it.
    Stale,
    /// From the cache, since the source does not know, or the guard holds its answer.
    StaleIfError,
}

impl CacheState {
    /// The word for it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Miss => "miss",
            Self::Hit => "hit",
            Self::Stale => "stale",
            Self::StaleIfError => "stale_if_error",
        }
    }
}

const fn usual_time() -> Timestamp {
    USUAL_TIME
}

/// A value that is present, even if it is `null`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    exact::read(deserializer).map(Some)
}

fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    let text = String::deserialize(deserializer)?;
    let is_date = text.len() == "2026-01-31".len();
    let whole = if is_date { format!("{text}T00:00:00Z") } else { text };
    let time = humantime::parse_rfc3339_weak(&whole).ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let time =
        time.ok_or_else(|| D::Error::custom("it is not a time; write it as `2026-01-31T12:00:00Z` or `2026-01-31`"))?;
    Ok(Timestamp(u64::try_from(time.as_millis()).unwrap_or_default()))
}
