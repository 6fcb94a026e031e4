//! The expected answer of a cell, and the check against it.

use std::time::Duration;

use super::{
    kind::Kind,
    rendition::{FAILED, HELD, INVALID, THROTTLED, TIMEOUT, UNSIGNED},
};
use crate::support::{Reply, Verdict};

/// The worth of a last good answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Worth {
    /// It is served, and the source is not asked.
    Fresh,
    /// It is served, and the source is asked in the background.
    Stale,
    /// It is served if the source fails.
    IfError,
    /// There is none, or it has expired.
    Nothing,
}

impl Worth {
    /// The worth at an age from `min_age` to `max_age`. A restored answer is never fresh.
    pub(super) fn of(min_age: Duration, max_age: Duration, is_restored: bool) -> Self {
        // Lifetimes vary by a tenth of the minute.
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

/// What the source would answer, if it were asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Because {
    /// The source fails.
    AtFault,
    /// The same, while an answer is held: only what is known now may confirm it or end it.
    AtFaultHeld,
    /// The same for another question that follows at once. A source that asked for a pause is not asked.
    AtFaultStill,
    /// No answer: the source has just failed, and pauses.
    Resting,
    /// The source answers that there is nothing, which is not accepted.
    Held,
    /// The same again, after the fault. Only a fault that also proved absence completes three agreeing runs.
    HeldStill,
}

/// The expected answer of a cell.
#[derive(Debug)]
pub(super) struct Expected<'a> {
    pub worth: Worth,
    /// Whether the question had a good answer that the gateway knows of.
    pub is_known: bool,
    pub because: Because,
    pub kind: Kind,
    pub route: &'a str,
    /// Whether the source asked for a pause.
    pub is_paused: bool,
    /// The possible codes of the fault.
    pub codes: &'a [&'static str],
    /// The question's key.
    pub key: String,
}

/// An unexpected answer of a cell.
#[derive(Debug)]
pub(super) struct Found {
    pub what: String,
    /// Whether Argo CD would act on it: a 2xx that is not the good answer, or one where there is none.
    pub is_success: bool,
}

impl Expected<'_> {
    /// The short form of an expected reply. `asked` is the number of requests to the source.
    ///
    /// # Errors
    /// If the reply is not the expected one.
    pub(super) fn judge(&self, reply: &Reply, asked: Option<usize>) -> Result<String, Found> {
        let wrong = |what: String| Err(Found { what, is_success: false });
        let description = match reply.verdict() {
            Verdict::Parameters(sets) => {
                let sets = serde_json::to_string(&sets).unwrap();
                if sets == self.kind.good() {
                    format!("good, {}", cache_status(reply))
                } else if self.kind.is_partial() && sets == self.kind.moved_on() {
                    format!("others, {}", cache_status(reply))
                } else {
                    return Err(Found { what: format!("200 {sets}"), is_success: true });
                }
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
        let codes = match self.codes {
            _ if is_held && self.is_probed_by_one() => &[HELD, FAILED],
            _ if is_held => &[HELD][..],
            [TIMEOUT] if self.may_have_opened_a_breaker() => &[TIMEOUT, FAILED],
            codes => codes,
        };
        let must = |code: &&str| match self.worth {
            _ if self.is_nothing() && self.because == Because::Resting => "nothing, hit".to_owned(),
            _ if self.is_nothing() => "nothing, stored".to_owned(),
            Worth::Fresh => "good, hit".to_owned(),
            Worth::Stale if self.because != Because::Resting => "good, stale".to_owned(),
            // All elements were known, so the answer is made without those that fail now.
            Worth::Stale | Worth::IfError if self.kind.is_partial() && self.because == Because::Resting => {
                "others, hit".to_owned()
            }
            Worth::IfError if self.kind.is_partial() && self.because == Because::AtFault => "others, stored".to_owned(),
            // The last build is an answer of its own.
            _ if *code == UNSIGNED && self.because == Because::Resting => "good, hit".to_owned(),
            _ if *code == UNSIGNED => "good, stored".to_owned(),
            Worth::Stale | Worth::IfError => format!("good, {code}"),
            Worth::Nothing => format!("{} {code}", status(code)),
        };
        if !codes.iter().map(must).any(|must| description == must) {
            let is_success = self.worth == Worth::Nothing && reply.status < 300;
            return Err(Found { what: description, is_success });
        }
        let may_ask = self.worth != Worth::Fresh && self.because != Because::Resting && !self.is_spared();
        match asked {
            Some(0) if may_ask && !self.may_have_opened_a_breaker() => {
                wrong(format!("{description}, but the source was not asked"))
            }
            Some(1..) if !may_ask => wrong(format!("{description}, but the source was asked")),
            _ => Ok(description),
        }
    }

    /// Whether absence is accepted: with proof, if nothing was there before or three runs agree.
    fn is_nothing(&self) -> bool {
        let is_never_built = self.codes.contains(&UNSIGNED) && !self.is_known;
        is_never_built || (self.codes.contains(&HELD) && (!self.is_known || self.because == Because::HeldStill))
    }

    /// Whether so many elements failed at one destination just now that the HTTP client may ask it nothing more.
    fn may_have_opened_a_breaker(&self) -> bool {
        self.kind == Kind::AllElements
            && !self.is_known
            && matches!(self.because, Because::AtFaultStill | Because::Resting)
    }

    /// Whether the HTTP client may have stopped asking the destination of several elements. When it asks again, one of them goes first, and the
    /// others are unknown in this run.
    fn is_probed_by_one(&self) -> bool {
        let is_open = self.kind == Kind::AllElements || (self.kind == Kind::SomeElements && self.is_paused);
        is_open && self.because == Because::HeldStill && matches!(self.codes, [FAILED | TIMEOUT])
    }

    /// Whether the HTTP client withholds this question from the source.
    fn is_spared(&self) -> bool {
        self.is_paused && self.because == Because::AtFaultStill
    }

    /// The text that is missing in the ApplicationSet's condition.
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
            wanted.push(": no request sent: it ".to_owned());
        }
        wanted.into_iter().find(|wanted| !condition.contains(wanted))
    }
}

/// The short form of `Cache-Status` for a good answer.
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
