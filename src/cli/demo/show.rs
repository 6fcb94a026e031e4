//! The story on a terminal, or in a file.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{IsTerminal as _, Write as _, stdout},
    sync::Arc,
    time::Duration,
};

use tokio::sync::Notify;

use super::gateway::Running;
use crate::cli::terminal::{Colour, Terminal};
use demo::{
    judge::{Reading, Reconciled},
    report::{SceneReport, Side},
    scene::Scene,
    source::Set,
    story::Show,
};
use domain::{units::plural, visible::visible};

/// The width of the text. A wider line is hard to read.
const WIDTH: usize = 96;
/// The blanks before the text of a scene.
const INDENT: &str = "     ";
/// The most characters of a reason that are printed. The page has all of it.
const MAX_REASON: usize = 240;
/// The characters of the bar of progress.
const BAR: usize = 20;

/// Prints nothing.
pub(super) struct Silent;

impl Show for Silent {
    fn begin(&mut self, _: &Scene) {}
    fn asked(&mut self, _: u64, _: Set, _: &Reconciled, _: &Reconciled) {}
    fn end(&mut self, _: &SceneReport) {}
    fn tick(&mut self, _: Duration) {}
}

/// Prints the story.
pub(super) struct Printer {
    terminal: Terminal,
    has_progress: bool,
    scenes: usize,
    begun: usize,
    length: Duration,
    passed: Duration,
    /// The last line about each list of this scene, and the minute until which it stayed so.
    last: BTreeMap<&'static str, String>,
    unchanged_until: Option<u64>,
    /// Notified when nobody reads any more.
    gone: Arc<Notify>,
}

impl Printer {
    /// Prints a story of so many `scenes` that takes `length`.
    pub(super) fn new(is_plain: bool, scenes: usize, length: Duration, gone: Arc<Notify>) -> Self {
        let terminal = if is_plain { Terminal::default() } else { Terminal::of_stdout() };
        Self {
            terminal,
            has_progress: !is_plain && stdout().is_terminal(),
            scenes,
            begun: 0,
            length,
            passed: Duration::ZERO,
            last: BTreeMap::new(),
            unchanged_until: None,
            gone,
        }
    }

    /// Prints where everything is.
    pub(super) fn introduce(&mut self, running: &Running) {
        self.line(&self.terminal.paint(Colour::Bold, "What does Argo CD delete on a bad day?"));
        self.text(
            "",
            "A gateway, its sources and Argo CD's part of the contract run in this process. On the left a plugin that catches its errors, \
             on the right the gateway, before the same sources. The story's clock runs ahead: three minutes pass in a moment.",
        );
        self.line(&format!("The gateway's page: {}", running.page()));
        self.line(&format!("Its token: {}", running.operator));
        if running.is_elsewhere() {
            self.line("(The page is on another port than usual: 4356 is taken.)");
        }
    }

    /// Prints the sum of all scenes.
    pub(super) fn sum_up(&mut self, reports: &[SceneReport], is_whole: bool) {
        let sum = |of: fn(&SceneReport) -> usize| reports.iter().map(of).sum::<usize>();
        let (without, gateway) =
            (sum(|report| report.without_gateway.deleted_wrongly), sum(|report| report.gateway.deleted_wrongly));
        self.line("");
        if !is_whole {
            self.line(&format!("Interrupted after {} of {} scenes.", reports.len(), self.scenes));
        }
        let text =
            format!("In all, {} deleted by mistake without the gateway, and {gateway} with it.", applications(without));
        let colour = if gateway == 0 { Colour::Green } else { Colour::Red };
        self.line(&self.terminal.paint(colour, &text));
    }

    /// Prints that the page is still there.
    pub(super) fn stay(&mut self, running: &Running) {
        self.line(&format!("The gateway's page is still at {}. Ctrl-C ends it.", running.page()));
    }

    /// Prints until when nothing changed, if that was before `minutes`, and forgets it.
    fn still(&mut self, minutes: u64) {
        if let Some(until) = self.unchanged_until.take().filter(|until| *until < minutes) {
            self.line(&format!("{INDENT}{until:>3} min  the same"));
        }
    }

    /// Prints a line above the progress.
    fn line(&self, line: &str) {
        let clear = if self.has_progress { "\r\u{1b}[K" } else { "" };
        self.write(&format!("{clear}{line}\n"));
    }

    /// Prints `text` in lines that fit, each after `indent`.
    fn text(&self, indent: &str, text: &str) {
        for line in wrapped(text, WIDTH - indent.len()) {
            self.line(&format!("{indent}{line}"));
        }
    }

    fn write(&self, text: &str) {
        let mut out = stdout();
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            self.gone.notify_one();
        }
    }

    fn progress(&self) {
        if !self.has_progress {
            return;
        }
        let (passed, length) = (self.passed.as_millis(), self.length.as_millis().max(1));
        let done = usize::try_from(BAR as u128 * passed / length).unwrap_or(BAR).min(BAR);
        let bar = format!("{}{}", "█".repeat(done), "░".repeat(BAR - done));
        let (passed, length) = (self.passed.as_secs(), self.length.as_secs());
        self.write(&format!("\r\u{1b}[K{bar} scene {} of {}, {passed} of {length} s", self.begun, self.scenes));
    }
}

impl Show for Printer {
    fn begin(&mut self, scene: &Scene) {
        self.begun += 1;
        let title = format!("{}/{}  {}", self.begun, self.scenes, scene.title);
        self.line("");
        self.line(&format!("{}  ({})", self.terminal.paint(Colour::Bold, &title), scene.name));
        self.text(INDENT, scene.happens);
        self.progress();
    }

    fn asked(&mut self, minutes: u64, set: Set, without: &Reconciled, gateway: &Reconciled) {
        let cell = |reconciled: &Reconciled, width: usize| {
            let text = format!("{:width$}", in_words(reconciled));
            if reconciled.deleted.is_empty() { text } else { self.terminal.paint(Colour::Red, &text) }
        };
        let [left, right] = [cell(without, 34), cell(gateway, 0)];
        let line = format!("{:9} without: {left} here: {right}", set.name());
        if self.last.get(set.name()) == Some(&line) {
            self.unchanged_until = Some(minutes);
        } else {
            self.still(minutes);
            self.line(&format!("{INDENT}{minutes:>3} min  {line}"));
            self.last.insert(set.name(), line);
        }
        self.progress();
    }

    fn end(&mut self, report: &SceneReport) {
        self.still(u64::MAX);
        self.last.clear();
        let (without, gateway) = (&report.without_gateway, &report.gateway);
        let text = conclusion(without, gateway);
        let colour = if gateway.deleted_wrongly == 0 { Colour::Green } else { Colour::Red };
        for line in wrapped(&text, WIDTH - INDENT.len()) {
            self.line(&format!("{INDENT}{}", self.terminal.paint(colour, &line)));
        }
        let passed_on = &report.errors_passed_on;
        if passed_on.errors > 0 {
            self.text(
                INDENT,
                &format!(
                    "(A plugin that passes its errors on: {} deleted, but {} of its answers {} an error, and Argo CD then changes nothing at all.)",
                    applications(passed_on.deleted.len()),
                    passed_on.errors,
                    if passed_on.errors == 1 { "was" } else { "were" },
                ),
            );
        }
        self.progress();
    }

    fn tick(&mut self, time: Duration) {
        self.passed += time;
        self.progress();
    }
}

/// The difference that the gateway made, with its reasons.
fn conclusion(without: &Side, gateway: &Side) -> String {
    if without.deleted.is_empty() && gateway.deleted.is_empty() {
        return "Nothing was deleted, without the gateway and with it.".to_owned();
    }
    let mut text = format!("Without the gateway Argo CD would have deleted {}", applications(without.deleted.len()));
    if without.deleted_wrongly == 0 {
        text += ", rightly";
    }
    let _ = write!(text, "; here: {}", gateway.deleted.len());
    if !gateway.deleted.is_empty() && gateway.deleted_wrongly == 0 {
        text += ", rightly, but not before it was confirmed";
    }
    // The first is the most important. The JSON has all of them.
    let Some(reason) = gateway.because.first().map(|reason| short(reason)) else { return text + "." };
    if gateway.deleted.is_empty() { text + ", because " + &reason } else { text + ". Until then: " + &reason }
}

/// A reason that fits on a few lines, and cannot steer a terminal. A longer one ends after a whole part of its sentence, if it has parts.
fn short(reason: &str) -> String {
    let reason = visible(reason);
    let Some((end, _)) = reason.char_indices().nth(MAX_REASON) else { return reason };
    let shown = &reason[..end];
    let part = shown.rfind("; ").or_else(|| shown.rfind(", ")).unwrap_or(end);
    format!("{} …", &shown[..part])
}

fn applications(count: usize) -> String {
    format!("{count} Application{}", plural(count))
}

/// What Argo CD reads, and does.
fn in_words(reconciled: &Reconciled) -> String {
    let read = match &reconciled.reading {
        Reading::Error(_) => return "an error: changes nothing".to_owned(),
        Reading::Sets(count) => format!("{count} set{}", plural(*count)),
    };
    match (reconciled.created.len(), reconciled.deleted.len()) {
        (0, 0) => format!("{read}: changes nothing"),
        (created, 0) => format!("{read}: creates {created}"),
        (0, deleted) => format!("{read}: deletes {deleted}"),
        (created, deleted) => format!("{read}: creates {created}, deletes {deleted}"),
    }
}

/// `text` in lines of at most `width` characters, cut at blanks.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
