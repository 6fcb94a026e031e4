//! Formats the steps of an answer, as JSON or as text.

use serde_json::{Map, Value, json};

use crate::domain::{document::excerpt, generator::watch::Step, secret::Secrets};

/// The most characters of a list in text. JSON has the whole list.
const MAX_SHOWN_CHARS: usize = 1000;

/// The steps as JSON, without `secrets`.
pub(crate) fn tell(steps: &[Step], secrets: &Secrets) -> Value {
    // The output of a single step may hold a secret that the answer does not.
    steps.iter().map(|step| secrets.redact_json(of_step(step))).collect()
}

/// The steps in the form of [`tell`], as lines of text.
pub(crate) fn lines(steps: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for step in steps.as_array().into_iter().flatten() {
        let text = |key: &str| step[key].as_str().unwrap_or_default();
        let number = |key: &str| step[key].as_f64();
        let mut head = format!("ran       {} ({})", text("name"), text("kind"));
        head += &number("milliseconds").map_or_else(|| ", not done".to_owned(), |took| format!(", {took:.1} ms"));
        head += &number("cpuMilliseconds").map(|cpu| format!(", {cpu:.1} ms of CPU")).unwrap_or_default();
        let peak = number("peakMemoryBytes").map(|bytes| format!(", at most {:.1} MiB", bytes / 1_048_576.0));
        head += &peak.unwrap_or_default();
        lines.push(head);
        for key in ["input", "output"] {
            let list = step.get(key).map(|list| excerpt(list.to_string().as_bytes(), MAX_SHOWN_CHARS));
            lines.extend(list.map(|list| format!("  {key:<8}{list}")));
        }
        lines.extend(step.get("error").map(|_| format!("  error   {}", text("error"))));
        lines.extend(
            text("stderr").lines().map(|line| format!("  stderr  {}", excerpt(line.as_bytes(), MAX_SHOWN_CHARS))),
        );
    }
    lines
}

fn of_step(step: &Step) -> Value {
    let mut json = Map::new();
    json.insert("name".into(), step.name.as_str().into());
    json.insert("kind".into(), step.kind.into());
    let milliseconds = |time: std::time::Duration| json!(time.as_secs_f64() * 1000.0);
    let optional = [
        ("milliseconds", step.took.map(milliseconds)),
        ("cpuMilliseconds", step.cpu.map(milliseconds)),
        ("peakMemoryBytes", step.peak_memory.map(Value::from)),
        ("input", step.input.as_deref().cloned()),
        ("output", step.output.clone().map(Value::Array)),
        ("error", step.error.clone().map(Value::String)),
        ("stderr", step.stderr.clone().filter(|text| !text.trim().is_empty()).map(Value::String)),
    ];
    json.extend(optional.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    Value::Object(json)
}
