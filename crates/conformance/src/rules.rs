//! The rules of the suite. `docs/conformance.md` explains each.

use std::time::Duration;

use serde::Serialize;

use domain::{secret::Secrets, visible::is_hidden};

/// How much a rule matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Level {
    /// Argo CD needs it.
    Must,
    /// It helps operators, or avoids surprises.
    Should,
    /// Otherwise Argo CD deletes Applications by mistake.
    Hazard,
}

impl Level {
    /// The name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
            Self::Hazard => "HAZARD",
        }
    }
}

/// A rule: its name, its level, and its demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// The name in reports.
    pub id: &'static str,
    /// How much it matters.
    pub level: Level,
    /// The requirement for a plugin.
    pub asks: &'static str,
}

const fn rule(id: &'static str, level: Level, asks: &'static str) -> Rule {
    Rule { id, level, asks }
}

pub(crate) const ANSWERS: Rule = rule("answers", Level::Must, "a good question gets a 2xx with `output.parameters`");
pub(crate) const EXPECTED: Rule =
    rule("expected-sets", Level::Must, "the parameter sets are those that the case expects");
pub(crate) const IN_TIME: Rule = rule("in-time", Level::Must, "the answer is complete within 30 s");
pub(crate) const NO_REDIRECT: Rule = rule("no-redirect", Level::Must, "no answer is a redirect");
pub(crate) const EQUAL: Rule = rule("equal-answers", Level::Must, "equal questions get equal answers");
pub(crate) const CONCURRENT: Rule = rule("concurrent", Level::Must, "ten questions at once get the same answers");
pub(crate) const NO_TOKEN: Rule = rule("no-token", Level::Must, "a question without a token is refused");
pub(crate) const WRONG_TOKEN: Rule = rule("wrong-token", Level::Must, "a question with a wrong token is refused");
pub(crate) const REFUSES: Rule = rule("refuses-input", Level::Must, "a bad question gets an error, never a 2xx");
pub(crate) const REFUSES_HALF: Rule =
    rule("refuses-half", Level::Must, "a body that is half a JSON document gets an error, never a 2xx");
pub(crate) const NO_RESERVED: Rule =
    rule("no-reserved-keys", Level::Must, "no set has a key that Argo CD overwrites (`generator`, `values`)");
pub(crate) const CLIENT_ERROR: Rule = rule("client-error", Level::Should, "a bad question and a bad token get a 4xx");
pub(crate) const MESSAGE: Rule =
    rule("error-message", Level::Should, "an error is a JSON object with the text `message` at its top level");
pub(crate) const TEXT: Rule =
    rule("numbers-as-text", Level::Should, "numbers are texts: Argo CD prints 1000000 as 1e+06");
pub(crate) const NO_NULL: Rule = rule("no-null", Level::Should, "no value is null, which Argo CD prints as `<nil>`");
pub(crate) const WHOLE: Rule =
    rule("content-length", Level::Should, "an answer has a `Content-Length`, so that a part is not an answer");
pub(crate) const EXPLICIT: Rule =
    rule("explicit-list", Level::Hazard, "a 2xx without `output.parameters` deletes all Applications of the set");
pub(crate) const BROKEN_SOURCE: Rule =
    rule("broken-source", Level::Hazard, "a fault of the source is an error, never an empty or a smaller list");

/// All rules, in the order of reports.
pub const ALL: [Rule; 18] = [
    ANSWERS,
    EXPECTED,
    IN_TIME,
    NO_REDIRECT,
    EQUAL,
    CONCURRENT,
    NO_TOKEN,
    WRONG_TOKEN,
    REFUSES,
    REFUSES_HALF,
    NO_RESERVED,
    CLIENT_ERROR,
    MESSAGE,
    TEXT,
    NO_NULL,
    WHOLE,
    EXPLICIT,
    BROKEN_SOURCE,
];

/// The result of a rule.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckedRule {
    /// The rule.
    #[serde(flatten)]
    pub rule: Rule,
    /// How often it was checked.
    pub checks: usize,
    /// The violations, each once.
    pub failures: Vec<String>,
    /// Why it is not known whether the rule is kept, each once.
    pub unknown: Vec<String>,
}

impl CheckedRule {
    /// Whether the rule was broken.
    pub(crate) fn is_broken(&self) -> bool {
        !self.failures.is_empty()
    }

    /// The result of the rule, in reports.
    pub fn result(&self) -> &'static str {
        match self.checks {
            _ if self.is_broken() => "fail",
            _ if !self.unknown.is_empty() => "unknown",
            0 => "skipped",
            _ => "pass",
        }
    }

    /// The violations, and the unclear results.
    pub fn problems(&self) -> impl Iterator<Item = &String> {
        self.failures.iter().chain(&self.unknown)
    }
}

/// The most problems of a kind that are kept of one rule.
const MAX_PROBLEMS: usize = 100;
/// The longest text of a problem, in characters.
const MAX_TEXT_CHARS: usize = 300;

/// The results of all rules.
#[derive(Debug)]
pub struct Results {
    checked: Vec<CheckedRule>,
    secrets: Secrets,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Why not everything was sent.
    pub unfinished: Option<String>,
}

impl Results {
    /// The results before anything was sent. No problem shows a value of `secrets`.
    pub fn new(secrets: Secrets, timeout: Duration) -> Self {
        let checked = ALL.map(|rule| CheckedRule { rule, checks: 0, failures: Vec::new(), unknown: Vec::new() });
        Self { checked: checked.into(), secrets, timeout, unfinished: None }
    }

    /// Checks `rule`. `what` is the mistake, if there is one. It may hold a whole reply.
    pub fn check(&mut self, rule: Rule, what: Option<String>) {
        let what = what.map(|what| printable(&self.secrets.redact(&what)));
        if let Some(checked) = self.of(rule) {
            checked.checks += 1;
            note(&mut checked.failures, what);
        }
    }

    /// Notes that it is not known whether `rule` is kept.
    pub fn unknown(&mut self, rule: Rule, why: &str) {
        let why = printable(&self.secrets.redact(why));
        if let Some(checked) = self.of(rule) {
            note(&mut checked.unknown, Some(why));
        }
    }

    /// Notes that the suite ended before everything was sent. A rule that was kept so far might still be broken.
    pub fn stop(&mut self, why: &str) {
        for checked in self.checked.iter_mut().filter(|checked| checked.checks > 0) {
            checked.unknown.push(why.to_owned());
        }
        self.unfinished = Some(why.to_owned());
    }

    fn of(&mut self, rule: Rule) -> Option<&mut CheckedRule> {
        self.checked.iter_mut().find(|checked| checked.rule.id == rule.id)
    }

    /// All rules with their results.
    pub fn all(&self) -> &[CheckedRule] {
        &self.checked
    }

    /// Whether no rule was broken that matters (`MUST` and `HAZARD`), and everything was sent and evaluated.
    pub fn conforms(&self) -> bool {
        self.unfinished.is_none() && !self.is_broken() && self.checked.iter().all(|checked| checked.unknown.is_empty())
    }

    /// Whether a rule was broken that matters.
    pub(crate) fn is_broken(&self) -> bool {
        self.checked.iter().any(|checked| checked.rule.level != Level::Should && checked.is_broken())
    }
}

fn note(problems: &mut Vec<String>, what: Option<String>) {
    if let Some(what) = what
        && problems.len() < MAX_PROBLEMS
        && !problems.contains(&what)
    {
        problems.push(what);
    }
}

/// One line that a terminal shows as it is. A reply may hold anything, such as characters that move the cursor or change the direction of text.
pub fn printable(text: &str) -> String {
    let mut line: String = text.chars().take(MAX_TEXT_CHARS).map(|c| if is_hidden(c) { ' ' } else { c }).collect();
    if text.chars().nth(MAX_TEXT_CHARS).is_some() {
        line.push('…');
    }
    line
}
