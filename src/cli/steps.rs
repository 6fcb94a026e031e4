//! The steps of an answer as lines of text.

use crate::overview::steps::StepView;
use domain::document::excerpt;

/// The most characters of a list in text. JSON has the whole list.
const MAX_SHOWN_CHARS: usize = 1000;

/// `steps` as lines of text. An error of a step is left out if `message`, which the reader has already, quotes it.
pub(crate) fn lines(steps: &[StepView], message: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for step in steps {
        let mut head = format!("ran       {} ({})", step.name, step.kind);
        head += &step.milliseconds.map_or_else(|| ", not done".to_owned(), |took| format!(", {took:.1} ms"));
        head += &step.cpu_milliseconds.map(|cpu| format!(", {cpu:.1} ms of CPU")).unwrap_or_default();
        let peak = step.peak_memory_bytes.map(|bytes| format!(", at most {:.1} MiB", mebibytes(bytes)));
        head += &peak.unwrap_or_default();
        lines.push(head);
        for (name, list) in [("input", &step.input), ("output", &step.output)] {
            let list = list.as_ref().map(|list| excerpt(list.to_string().as_bytes(), MAX_SHOWN_CHARS));
            lines.extend(list.map(|list| format!("  {name:<8}{list}")));
        }
        let error = step.error.as_ref().filter(|error| !message.contains(error.as_str()));
        lines.extend(error.map(|error| format!("  error   {error}")));
        let stderr = step.stderr.iter().flat_map(|text| text.lines());
        lines.extend(stderr.map(|line| format!("  stderr  {}", excerpt(line.as_bytes(), MAX_SHOWN_CHARS))));
    }
    lines
}

#[expect(clippy::cast_precision_loss, reason = "a tenth of a MiB is shown")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}
