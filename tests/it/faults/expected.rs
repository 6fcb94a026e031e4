//! What a cell must say, and whether it does.

use std::time::Duration;

use super::{
    kind::Kind,
    rendition::{FAILED, HELD, INVALID, THROTTLED, TIMEOUT},
};
use crate::support::{Reply, Verdict};

/// What a last good answer is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worth {
    /// It is served, and nobody is asked.
    Fresh,
    /// It is served, and the source asked behind its back.
    Stale,
    /// It is served if the source does not know.
    IfError,
    /// There is none, or it has expired.
    Nothing,
}

impl Worth {
    /// By an age of at least `least` and at most `most`. What was kept over a restart was never fresh.
    pub fn of(min_age: Duration, max_age: Duration, is_restored: bool) -> Self {
        // Lives differ by a tenth of the minute.
        let life = if is_restored { [0, 0] } else { [54, 66] };
        let [shortest, longest] = life.map(Duration::from_secs);
        let (stale, if_error) = (Duration::from_mins(15), Duration::from_mins(135));
        if max_age < shortest {
            Self::Fresh
        } else if min_age >= longest && max_age < shortest + stale {
            Self::Stale
        } else if min_age >= longest + stale && max_age < shortest + if_error {
            Self::IfError
        } else {
            assert!(min_age >= longest + if_error, "no state by itself: {min_age:?} to {max_age:?}");
            Self::Nothing
        }
    }
}

/// What the source would say, if it were asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Because {
    /// That it does not know.
    AtFault,
    /// The same, and this is another question that follows at once: whoever asked for a pause is not asked.
    AtFaultStill,
    /// Nothing, since it said just now that it does not know, and rests.
    Resting,
    /// That there is nothing, which is not believed.
    Held,
    /// The same again, after the fault: only what proved it too makes that three runs which agree.
    HeldStill,
}

/// What a cell must say.
#[derive(Debug)]
pub struct Expected<'a> {
    pub worth: Worth,
    /// Whether the question had a good answer that the gateway knows of.
    pub is_known: bool,
    pub because: Because,
    pub kind: Kind,
    pub route: &'a str,
    /// Whether the source asked to be left alone.
    pub is_paused: bool,
    /// The fault's code: one of these.
    pub codes: &'a [&'static str],
    /// The question's key.
    pub key: String,
}

/// What a cell says instead.
#[derive(Debug)]
pub struct Found {
    pub what: String,
    /// Whether Argo CD would act on it: a 2xx that is not the good answer, or one where there is none.
    pub is_success: bool,
}

impl Expected<'_> {
    /// What the reply is, in short, when it is as it must be. The source was `asked` so often for it.
    ///
    /// # Errors
    /// With what it is instead.
    pub fn judge(&self, reply: &Reply, asked: Option<usize>) -> Result<String, Found> {
        let wrong = |what: String| Err(Found { what, is_success: false });
        let told = match reply.verdict() {
            Verdict::Parameters(sets) => {
                let sets = serde_json::to_string(&sets).unwrap();
                if sets != self.kind.good() {
                    return Err(Found { what: format!("200 {sets}"), is_success: true });
                }
                format!("good, {}", cache_status(reply))
            }
            Verdict::ExplicitlyEmpty if self.is_nothing() => format!("nothing, {}", cache_status(reply)),
            Verdict::Error { status: Some(status), condition } => {
                if let Some(missing) = self.missing(reply, &condition) {
                    return wrong(format!("{status} without {missing}: {condition}"));
                }
                format!("{status} {}", reply.code())
            }
            other => return Err(Found { what: format!("{} {other:?}", reply.status), is_success: true }),
        };
        let is_held = matches!(self.because, Because::Held | Because::HeldStill);
        let codes = if is_held { &[HELD] } else { self.codes };
        let must = |code: &&str| match self.worth {
            _ if self.is_nothing() && self.because == Because::Resting => "nothing, hit".to_owned(),
            _ if self.is_nothing() => "nothing, stored".to_owned(),
            Worth::Fresh => "good, hit".to_owned(),
            Worth::Stale if self.because != Because::Resting => "good, stale".to_owned(),
            Worth::Stale | Worth::IfError => format!("good, {code}"),
            Worth::Nothing => format!("{} {code}", status(code)),
        };
        if !codes.iter().map(must).any(|must| told == must) {
            let is_success = self.worth == Worth::Nothing && reply.status < 300;
            return Err(Found { what: told, is_success });
        }
        let may_ask = self.worth != Worth::Fresh && self.because != Because::Resting && !self.is_spared();
        match asked {
            Some(0) if may_ask => wrong(format!("{told}, but the source was not asked")),
            Some(1..) if !may_ask => wrong(format!("{told}, but the source was asked")),
            _ => Ok(told),
        }
    }

    /// Whether it is believed that there is nothing: by proof, where there never was anything or three runs agree.
    fn is_nothing(&self) -> bool {
        self.codes.contains(&HELD) && (!self.is_known || self.because == Because::HeldStill)
    }

    /// Whether the way out keeps this question from the source.
    fn is_spared(&self) -> bool {
        self.is_paused && self.because == Because::AtFaultStill
    }

    /// What the operator would miss on the ApplicationSet's condition.
    fn missing(&self, reply: &Reply, condition: &str) -> Option<String> {
        let last = if self.is_known { "; the last good answer, of 2" } else { "; there is no last good answer" };
        let mut wanted = vec![
            format!("route {} ({}): ", self.route, self.kind.backend()),
            last.to_owned(),
            format!(" (key {})", self.key),
        ];
        if self.because == Because::Resting && reply.header("retry-after").is_none() {
            return Some("Retry-After".to_owned());
        }
        if self.is_spared() {
            wanted.push(": not asked: it ".to_owned());
        }
        wanted.into_iter().find(|wanted| !condition.contains(wanted))
    }
}

/// What `Cache-Status` says of a good answer.
fn cache_status(reply: &Reply) -> String {
    let status = reply.header("cache-status").unwrap_or_default();
    if status == "appset-gateway; fwd=miss; stored" {
        return "stored".to_owned();
    }
    let Some(rest) = status.strip_prefix("appset-gateway; hit; ttl=") else { return status.to_owned() };
    match (rest.starts_with('-'), rest.split_once("; detail=")) {
        (true, Some((_, detail))) => detail.to_owned(),
        (true, None) => "stale".to_owned(),
        (false, None) => "hit".to_owned(),
        (false, Some(_)) => status.to_owned(),
    }
}

fn status(code: &str) -> u16 {
    match code {
        FAILED | INVALID => 502,
        TIMEOUT => 504,
        THROTTLED => 429,
        _ => 503,
    }
}
