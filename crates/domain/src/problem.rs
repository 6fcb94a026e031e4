//! Problems of a configuration. They are collected, each at a [`Path`], so that an operator sees all of them at once. The program's
//! `config` has their files and lines.

use std::{fmt, time::Duration};

/// A place in the configuration: `routes[2].backend.script.timeout`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Path(Vec<Segment>);

/// One step of a [`Path`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Segment {
    /// A key of a mapping.
    Key(String),
    /// An index of a list, from 0.
    Index(usize),
}

impl Path {
    /// The whole document.
    #[must_use]
    pub const fn root() -> Self {
        Self(Vec::new())
    }

    /// This path and one key of a mapping.
    #[must_use]
    pub fn key(&self, key: impl Into<String>) -> Self {
        let mut path = self.clone();
        path.0.push(Segment::Key(key.into()));
        path
    }

    /// This path and one index of a list.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        let mut path = self.clone();
        path.0.push(Segment::Index(index));
        path
    }

    /// The steps from the root.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// The path without its last step; `None` at the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let (_, parent) = self.0.split_last()?;
        Some(Self(parent.to_vec()))
    }

    /// Whether `self` is `other` or lies below it.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }
}

impl FromIterator<Segment> for Path {
    fn from_iter<I: IntoIterator<Item = Segment>>(segments: I) -> Self {
        Self(segments.into_iter().collect())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) if position == 0 => f.write_str(key)?,
                Segment::Key(key) => write!(f, ".{key}")?,
            }
        }
        Ok(())
    }
}

/// The severity of a [`Problem`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The gateway does not start.
    Error,
    /// It cannot work once it is called, so `check` fails. The gateway starts: an earlier release accepted the configuration.
    Mistake,
    /// The gateway starts. `check` and the log report it.
    Warning,
    /// As a warning, but `check --strict` accepts it: it may be intended.
    Notice,
}

/// The kinds of problems that a report distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemKind {
    /// A required key is missing. This never follows from another problem.
    MissingKey,
    /// A file or variable with a secret, a key or a certificate cannot be read or used on this machine.
    Secret,
    /// The value seems to be a secret, written in the file itself. It is not shown.
    LiteralSecret,
    /// Anything else. It may follow from a problem in a part below it.
    Other,
}

/// One problem, its place, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The place.
    pub path: Path,
    /// The problem, in one sentence.
    pub message: String,
    /// The remedy, if it is known.
    pub help: Option<String>,
    /// How bad it is.
    pub severity: Severity,
    /// The kind of problem.
    pub kind: ProblemKind,
    /// Where it is in the text at `path`, in characters from 0, if that is known.
    pub within: Option<usize>,
}

impl Problem {
    /// The key `key` is missing from the mapping at `path`.
    pub fn missing_key(path: Path, key: &str) -> Self {
        let message = format!("the key `{key}` is missing");
        Self { path, message, help: None, severity: Severity::Error, kind: ProblemKind::MissingKey, within: None }
    }
}

/// A growing list of problems.
#[derive(Debug, Default)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Notes an error at `path`.
    pub fn error(&mut self, path: &Path, message: impl Into<String>) {
        self.push(path, message.into(), None, Severity::Error);
    }

    /// Notes an error at the character `within` of the text at `path`, with advice if there is some.
    pub fn error_within(&mut self, path: &Path, within: usize, message: String, help: Option<String>) {
        self.push(path, message, help, Severity::Error);
        if let Some(problem) = self.0.last_mut() {
            problem.within = Some(within);
        }
    }

    /// Adds problems that were found elsewhere.
    pub fn add(&mut self, problem: Problem) {
        self.0.push(problem);
    }

    /// Notes an error at `path` with advice.
    pub fn error_with_help(&mut self, path: &Path, message: impl Into<String>, help: impl Into<String>) {
        self.push(path, message.into(), Some(help.into()), Severity::Error);
    }

    /// Notes that the key `key` is missing from the mapping at `path`.
    pub fn missing_key(&mut self, path: &Path, key: &str, help: Option<&str>) {
        self.0.push(Problem { help: help.map(str::to_owned), ..Problem::missing_key(path.clone(), key) });
    }

    /// Notes a mistake at `path`: the gateway starts, and the part fails as soon as it is used.
    pub fn mistake(&mut self, path: &Path, message: impl Into<String>, help: impl Into<String>) {
        self.push(path, message.into(), Some(help.into()), Severity::Mistake);
    }

    /// Notes a warning at `path`: it works, but is probably not intended.
    pub fn warning(&mut self, path: &Path, message: impl Into<String>, help: impl Into<String>) {
        self.push(path, message.into(), Some(help.into()), Severity::Warning);
    }

    /// Notes something at `path` that may be wanted, and that an operator should see.
    pub fn notice(&mut self, path: &Path, message: impl Into<String>, help: impl Into<String>) {
        self.push(path, message.into(), Some(help.into()), Severity::Notice);
    }

    /// Warns that the value at `path` seems to be a secret, where it should be a reference to one.
    pub(crate) fn literal_secret(&mut self, path: &Path, message: impl Into<String>, help: impl Into<String>) {
        self.warning(path, message, help);
        if let Some(problem) = self.0.last_mut() {
            problem.kind = ProblemKind::LiteralSecret;
        }
    }

    /// Notes an error at `path` if `time` is zero.
    pub fn check_not_zero(&mut self, path: &Path, time: Duration) {
        if time.is_zero() {
            self.error(path, "with a time of 0 nothing is answered");
        }
    }

    /// The value of `result`, or `None` with the error noted at `path`.
    pub fn note<T, E: fmt::Display>(&mut self, path: &Path, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.error(path, error.to_string())).ok()
    }

    /// The value of `result`, or `None` with the error noted at `path`: a secret, a key or a certificate that cannot be read or used.
    pub fn note_secret<T, E: fmt::Display>(&mut self, path: &Path, result: Result<T, E>) -> Option<T> {
        let noted = |error: E| {
            self.error(path, error.to_string());
            if let Some(problem) = self.0.last_mut() {
                problem.kind = ProblemKind::Secret;
                problem.help =
                    Some("on a machine without the secrets, such as a laptop, use `check --no-secrets`".to_owned());
            }
        };
        result.map_err(noted).ok()
    }

    /// The list, in the order of discovery.
    #[must_use]
    pub fn into_vec(self) -> Vec<Problem> {
        self.0
    }

    fn push(&mut self, path: &Path, message: String, help: Option<String>, severity: Severity) {
        self.0.push(Problem { path: path.clone(), message, help, severity, kind: ProblemKind::Other, within: None });
    }
}
