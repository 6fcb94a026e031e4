//! The rules of the suite. `docs/conformance.md` explains each.

use serde::Serialize;

/// How much a rule matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Level {
    /// Argo CD needs it.
    Must,
    /// It helps operators, or avoids surprises.
    Should,
    /// Otherwise Argo CD deletes Applications that nobody wanted to delete.
    Hazard,
}

impl Level {
    /// The name in reports.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
            Self::Hazard => "HAZARD",
        }
    }
}

/// A rule: its name, its level, and what it asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Rule {
    /// The name in reports.
    pub(crate) id: &'static str,
    /// How much it matters.
    pub(crate) level: Level,
    /// What it asks of a plugin.
    pub(crate) asks: &'static str,
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
pub(crate) const REFUSES: Rule = rule("refuses-input", Level::Must, "a bad question gets an error, never a list");
pub(crate) const NO_RESERVED: Rule =
    rule("no-reserved-keys", Level::Must, "no set has a key that Argo CD overwrites (`generator`, `values`)");
pub(crate) const CLIENT_ERROR: Rule = rule("client-error", Level::Should, "a bad question and a bad token get a 4xx");
pub(crate) const MESSAGE: Rule =
    rule("error-message", Level::Should, "an error is a JSON object with the text `message` at its top level");
pub(crate) const TEXT: Rule =
    rule("numbers-as-text", Level::Should, "numbers are texts: Argo CD prints 1000000 as 1e+06");
pub(crate) const NO_NULL: Rule = rule("no-null", Level::Should, "no value is null, which Argo CD prints as `<nil>`");
pub(crate) const WHOLE: Rule =
    rule("content-length", Level::Should, "an answer has a `Content-Length`, so that a part is no answer");
pub(crate) const EXPLICIT: Rule =
    rule("explicit-list", Level::Hazard, "a 2xx without `output.parameters` deletes all Applications of the set");
pub(crate) const BROKEN_SOURCE: Rule =
    rule("broken-source", Level::Hazard, "a fault of the source is an error, never an empty or a smaller list");

/// All rules, in the order of reports.
pub(crate) const ALL: [Rule; 17] = [
    ANSWERS,
    EXPECTED,
    IN_TIME,
    NO_REDIRECT,
    EQUAL,
    CONCURRENT,
    NO_TOKEN,
    WRONG_TOKEN,
    REFUSES,
    NO_RESERVED,
    CLIENT_ERROR,
    MESSAGE,
    TEXT,
    NO_NULL,
    WHOLE,
    EXPLICIT,
    BROKEN_SOURCE,
];

/// What became of a rule.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Judged {
    /// The rule.
    #[serde(flatten)]
    pub(crate) rule: Rule,
    /// How often it was checked.
    pub(crate) checks: usize,
    /// What was wrong, each once.
    pub(crate) failures: Vec<String>,
}

impl Judged {
    /// Whether the rule was broken.
    pub(crate) fn is_broken(&self) -> bool {
        !self.failures.is_empty()
    }
}

/// The most failures that are kept of one rule.
const MAX_FAILURES: usize = 100;

/// The results of all rules.
#[derive(Debug)]
pub(crate) struct Results(Vec<Judged>);

impl Default for Results {
    fn default() -> Self {
        Self(ALL.map(|rule| Judged { rule, checks: 0, failures: Vec::new() }).into())
    }
}

impl Results {
    /// Checks `rule`. `what` says what is wrong, if something is.
    pub(crate) fn check(&mut self, rule: Rule, what: Option<String>) {
        let Some(judged) = self.0.iter_mut().find(|judged| judged.rule.id == rule.id) else { return };
        judged.checks += 1;
        if let Some(what) = what
            && judged.failures.len() < MAX_FAILURES
            && !judged.failures.contains(&what)
        {
            judged.failures.push(what);
        }
    }

    /// All rules with their results.
    pub(crate) fn all(&self) -> &[Judged] {
        &self.0
    }

    /// Whether no rule was broken that matters: `MUST` and `HAZARD`.
    pub(crate) fn conforms(&self) -> bool {
        !self.0.iter().any(|judged| judged.rule.level != Level::Should && judged.is_broken())
    }
}
