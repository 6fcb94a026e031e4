//! The report of a configuration's problems, shown as a compiler shows errors.

mod mask;
mod sarif;

use std::fmt::{self, Display};

use miette::{GraphicalReportHandler, LabeledSpan, MietteDiagnostic, NamedSource};
use serde::Serialize;

use self::mask::{in_one_line, masked, names_secret};
use super::tree::{Node, Position};
use domain::{
    problem::{Problem, ProblemKind, Segment, Severity},
    secret::REDACTED,
    units::plural,
};

/// Shorter values are not hidden: they would be found in other words. In bytes.
const SHORTEST_LITERAL: usize = 4;

/// How severely a report counts its problems.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Strictness {
    /// As a start does: only a problem that keeps the gateway from starting is an error.
    #[default]
    Start,
    /// As `check` does: mistakes are errors too.
    Check,
    /// As `check --strict` does: everything is an error.
    Strict,
}

/// The problems of one file, and for the files that belong to it.
#[derive(Debug, Clone)]
pub struct Report {
    name: String,
    source: String,
    strictness: Strictness,
    problems: Vec<LocatedProblem>,
    seen: Box<Seen>,
    /// The reports of files that belong to it, such as plugins.
    others: Vec<Self>,
}

/// A report's data about the file. Boxed, since a report is the error of many functions.
#[derive(Debug, Clone, Default)]
struct Seen {
    /// Values that seem to be secrets. They are not shown.
    literals: Vec<String>,
    /// The places of values that could not be decoded.
    taken_out: Vec<domain::problem::Path>,
}

/// One problem with its place.
#[derive(Debug, Clone)]
pub(super) struct LocatedProblem {
    pub(super) at: Position,
    pub(super) path: String,
    pub(super) message: String,
    pub(super) help: Option<String>,
    severity: Severity,
    real: domain::problem::Path,
}

/// One problem as programs read it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenProblem<'a> {
    file: &'a str,
    line: u64,
    column: u64,
    path: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<&'a str>,
    severity: &'static str,
}

impl Report {
    /// An empty report on `source`, which came from the file `name`.
    #[must_use]
    pub(crate) fn new(name: &str, source: String) -> Self {
        Self {
            name: name.to_owned(),
            source,
            strictness: Strictness::default(),
            problems: Vec::new(),
            seen: Box::default(),
            others: Vec::new(),
        }
    }

    /// The report on a file that cannot be read.
    #[must_use]
    pub(crate) fn unreadable(name: &str, why: &dyn Display) -> Self {
        Self::unreadable_as("configuration", name, why)
    }

    /// The report on a file of the kind `what` that cannot be read.
    #[must_use]
    pub(crate) fn unreadable_as(what: &str, name: &str, why: &dyn Display) -> Self {
        let mut report = Self::new(name, String::new());
        report.syntax(Position { line: 1, column: 1, offset: 0 }, format!("cannot read the {what}: {why}"));
        report
    }

    /// The names and texts of the file and of the files that belong to it.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        let others = self.others.iter().map(|other| (&*other.name, &*other.source));
        [(&*self.name, &*self.source)].into_iter().chain(others)
    }

    /// The text of the file.
    #[must_use]
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// Notes an error of the text, at a position without a path.
    pub(crate) fn syntax(&mut self, at: Position, message: String) {
        self.push(at, domain::problem::Path::root(), message, None, Severity::Error);
    }

    /// As [`Self::syntax`], with advice.
    pub(crate) fn syntax_with_help(&mut self, at: Position, message: &str, help: &str) {
        self.push(at, domain::problem::Path::root(), message.to_owned(), Some(help.to_owned()), Severity::Error);
    }

    /// Notes `problem`, whose path refers to `tree`. A problem of a part is left out if an error below that part was found before, because
    /// it may only be a consequence.
    pub(crate) fn add(&mut self, tree: &Node, mut problem: Problem) {
        if let Some(Segment::Key(key)) = problem.path.segments().last()
            && names_secret(key)
            && let Some(text) = tree.text(&problem.path)
        {
            problem.message = problem.message.replace(&text, REDACTED);
        }
        if problem.kind == ProblemKind::LiteralSecret {
            self.seen.literals.extend(tree.text(&problem.path));
        }
        let (at, real) = tree.locate(&problem.path);
        let within = problem.within.and_then(|within| tree.position_within(&problem.path, within, &self.source));
        let at = within.unwrap_or(at);
        let is_below = |problem: &LocatedProblem| {
            problem.severity == Severity::Error && problem.real != real && problem.real.is_within(&real)
        };
        // A value that was taken out may be missed later.
        let follows = self.problems.iter().any(is_below) || self.seen.taken_out.iter().any(|out| real.is_within(out));
        if problem.kind != ProblemKind::MissingKey && follows {
            return;
        }
        self.push(at, real, problem.message, problem.help, problem.severity);
    }

    /// Notes that the value at `real` could not be decoded. Later problems at this place are consequences.
    pub(super) fn take_out(&mut self, real: domain::problem::Path) {
        self.seen.taken_out.push(real);
    }

    /// Adds the report on a file that belongs to this one.
    pub(crate) fn join(&mut self, mut other: Self) {
        other.sort();
        if !other.is_empty() {
            self.others.push(other);
        }
    }

    /// Counts the problems by `strictness`.
    #[must_use]
    pub(crate) fn counted(mut self, strictness: Strictness) -> Self {
        self.strictness = strictness;
        self.others = self.others.into_iter().map(|other| other.counted(strictness)).collect();
        self
    }

    /// All problems with the names of their files; those of this file come first.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &LocatedProblem)> {
        let own = self.problems.iter().map(|problem| (&*self.name, problem));
        let others = self.others.iter().flat_map(|other| other.problems.iter().map(|problem| (&*other.name, problem)));
        own.chain(others)
    }

    /// Whether `problem` counts as an error.
    pub(super) fn is_error(&self, problem: &LocatedProblem) -> bool {
        match problem.severity {
            Severity::Error => true,
            Severity::Mistake => self.strictness != Strictness::Start,
            Severity::Warning => self.strictness == Strictness::Strict,
            Severity::Notice => false,
        }
    }

    fn severity(&self, problem: &LocatedProblem) -> &'static str {
        if self.is_error(problem) { "error" } else { "warning" }
    }

    /// Sorts the problems by line, and the other files by name.
    pub(crate) fn sort(&mut self) {
        self.others.sort_by(|one, other| one.name.cmp(&other.name));
        self.problems.sort_by_key(|problem| (problem.at.line, problem.at.column));
    }

    /// Whether there are errors, with which the gateway does not start.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.count("error") > 0
    }

    /// Whether there are no problems.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    /// One line per problem: `file:line:column: path: message (help)`.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let line = |(file, problem): (&str, &LocatedProblem)| {
            let path = if problem.path.is_empty() { String::new() } else { format!("{}: ", problem.path) };
            let help = problem.help.as_ref().map(|help| format!(" ({help})")).unwrap_or_default();
            format!("{file}:{}:{}: {path}{}{help}", problem.at.line, problem.at.column, problem.message)
        };
        self.all().map(line).collect()
    }

    /// The problems as a JSON list.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let written = self.all().map(|(file, problem)| WrittenProblem {
            file,
            line: problem.at.line,
            column: problem.at.column,
            path: &problem.path,
            message: &problem.message,
            help: problem.help.as_deref(),
            severity: self.severity(problem),
        });
        serde_json::to_value(written.collect::<Vec<_>>()).unwrap_or_default()
    }

    /// `2 errors, 1 warning`
    #[must_use]
    pub(crate) fn summary(&self) -> String {
        let count = |n: usize, what: &str| format!("{n} {what}{}", plural(n));
        let (errors, warnings) = (self.count("error"), self.count("warning"));
        match (errors, warnings) {
            (0, _) => count(warnings, "warning"),
            (_, 0) => count(errors, "error"),
            _ => format!("{}, {}", count(errors, "error"), count(warnings, "warning")),
        }
    }

    fn count(&self, severity: &str) -> usize {
        self.all().filter(|(_, problem)| self.severity(problem) == severity).count()
    }

    fn push(
        &mut self,
        at: Position,
        real: domain::problem::Path,
        message: String,
        help: Option<String>,
        severity: Severity,
    ) {
        self.problems.push(LocatedProblem {
            at: Position { offset: at.offset.min(self.source.len()), ..at },
            path: in_one_line(real.to_string()),
            message: in_one_line(message),
            help: help.map(in_one_line),
            severity,
            real,
        });
    }
}

impl Report {
    /// The text of the file without values that may be secrets.
    fn shown_source(&self) -> String {
        // Patterns hide less of a line, so that it stays readable. A value that they leave as it is becomes stars.
        let lines = self.seen.literals.iter().flat_map(|literal| literal.lines()).map(str::trim);
        let hide = |source: String, line: &str| source.replace(line, &"*".repeat(line.len()));
        lines.filter(|line| line.len() >= SHORTEST_LITERAL).fold(masked(&self.source), hide)
    }
}

impl fmt::Display for Report {
    /// The problems, each with its line of the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let handler = GraphicalReportHandler::new().with_width(110);
        let source = self.shown_source();
        for problem in &self.problems {
            let offset = problem.at.offset;
            let rest = &self.source[offset..];
            let length = rest.find(['\n', ':', ',', ' ', '}']).unwrap_or(rest.len()).max(usize::from(!rest.is_empty()));
            let message = if problem.path.is_empty() {
                problem.message.clone()
            } else {
                format!("{}: {}", problem.path, problem.message)
            };
            let mut diagnostic = MietteDiagnostic::new(message)
                .with_severity(if self.is_error(problem) { miette::Severity::Error } else { miette::Severity::Warning })
                .with_label(LabeledSpan::underline(offset..offset + length));
            diagnostic.help.clone_from(&problem.help);
            let report = miette::Report::new(diagnostic)
                .with_source_code(NamedSource::new(&self.name, source.clone()).with_language("yaml"));
            handler.render_report(f, &*report)?;
        }
        self.others.iter().try_for_each(|other| other.fmt(f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_one_line() {
        let mut report = Report::new("g.yaml", "a: 1".to_owned());
        let tree = super::super::tree::parse(&mut report).unwrap();
        let path = domain::problem::Path::root().key("\u{1b}[31m");
        let mut problems = domain::problem::Problems::default();
        problems.error_with_help(&path, "unknown\n\u{1b}[2J", "did you mean\r\n`x`?");
        problems.into_vec().into_iter().for_each(|problem| report.add(&tree, problem));
        assert_eq!(report.lines(), ["g.yaml:1:1:  [31m: unknown  [2J (did you mean  `x`?)"]);
    }

    #[test]
    fn a_secret_is_not_shown() {
        let report = Report::new("g.yaml", "token: hunter2".to_owned());
        let mut report = report;
        report.syntax(Position { line: 1, column: 1, offset: 0 }, "unknown key".to_owned());
        assert!(!report.to_string().contains("hunter2"), "{report}");
    }
}
