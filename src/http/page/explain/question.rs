//! The form for a question, and the list of known questions.

use maud::{Markup, html};
use serde_json::Value;
use url::form_urlencoded;

use super::super::{
    Visitor,
    document::form_token,
    pages::{self, Page},
    text::{outside, parameters, prose, since},
};
use crate::overview::answers::RememberedAnswer;
use domain::{clock::Timestamp, document, generator::Parameters};

/// A question as the form has it.
#[derive(Debug, Clone, Default)]
pub(crate) struct QuestionForm {
    /// The route.
    pub(crate) route: String,
    /// The ApplicationSet that asks.
    pub(crate) application_set: String,
    /// The parameters: a line for each, or a JSON object.
    pub(crate) parameters: String,
}

impl QuestionForm {
    /// The question of a remembered answer.
    pub(crate) fn of(answer: &RememberedAnswer) -> Self {
        let application_set = answer.application_set.clone().or_else(|| answer.requesters.first().cloned());
        Self {
            route: answer.route.clone(),
            application_set: application_set.unwrap_or_default(),
            parameters: written(&answer.input),
        }
    }

    /// The parameters.
    ///
    /// # Errors
    /// When a line has no `=`, or the text begins like an object and is none.
    pub(crate) fn read(&self) -> Result<Parameters, String> {
        let text = self.parameters.trim();
        if text.starts_with('{') {
            return match document::parse(text.as_bytes())? {
                Value::Object(fields) => Ok(fields),
                _ => Err("the parameters are not a JSON object".to_owned()),
            };
        }
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        lines
            .map(|line| {
                let (name, value) = line.split_once('=').ok_or("write each parameter as `name=value`, one a line")?;
                Ok((name.trim().to_owned(), Value::String(value.trim().to_owned())))
            })
            .collect()
    }
}

/// The parameters as the form has them: lines if these can be read back, else JSON.
fn written(parameters: &Parameters) -> String {
    let lines: Option<Vec<String>> =
        parameters.iter().map(|(name, value)| value.as_str().map(|value| format!("{name}={value}"))).collect();
    let text = lines.unwrap_or_default().join("\n");
    let read = QuestionForm { parameters: text.clone(), ..QuestionForm::default() }.read();
    if read.as_ref() == Ok(parameters) { text } else { serde_json::to_string_pretty(parameters).unwrap_or_default() }
}

/// The form. `routes` are the names to choose from.
pub(crate) fn form(form: &QuestionForm, routes: &[String], problem: Option<&str>, visitor: &Visitor) -> Markup {
    let rows = form.parameters.lines().count().clamp(2, 12);
    html! {
        form.card.stacked method="post" action="/explain" {
            (form_token(visitor))
            @if let Some(problem) = problem { p.problem role="alert" { (prose(problem)) } }
            div.ask {
                div.field {
                    label for="route" { "Route" }
                    select #route name="route" {
                        @for name in routes { option value=(name) selected[*name == form.route] { (name) } }
                    }
                }
                div.field {
                    label for="application-set" { "ApplicationSet" }
                    input #application-set name="applicationSet" type="text" value=(form.application_set) autocomplete="off" spellcheck="false";
                }
            }
            div.field {
                label for="parameters" { "Parameters, one a line" }
                textarea #parameters name="parameters" rows=(rows) spellcheck="false" placeholder="branch=feature/login" { (form.parameters) }
            }
            div.buttons { button.primary type="submit" { "Ask the source now" } }
            p.quiet { "Nothing is stored, and no caller notices. The source is called once." }
        }
    }
}

/// The known questions.
pub(crate) fn known(answers: &[RememberedAnswer], page: Page, route: Option<&str>, now: Timestamp) -> Markup {
    let query: Vec<(&str, &str)> = route.iter().map(|route| ("route", *route)).collect();
    html! {
        section aria-labelledby="known" {
            div.heading {
                h2 #known { "Known questions" @if let Some(route) = route { " of " (outside(route)) } }
                p.quiet { (page.total) @if route.is_some() { " · " a href="/explain" { "of all routes" } } }
            }
            @if answers.is_empty() {
                p.quiet { "No question came yet." }
            } @else {
                div.card.wide {
                    table {
                        thead { tr { th scope="col" { "Question" } th scope="col" { "State" } th scope="col" { "Sets" } th scope="col" { "Stored" } th scope="col" { "Requested by" } } }
                        tbody { @for answer in answers { (row(answer, now)) } }
                    }
                }
                (pages::links("/explain", &query, page))
            }
        }
    }
}

fn row(answer: &RememberedAnswer, now: Timestamp) -> Markup {
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("key", &answer.key).finish();
    html! {
        tr {
            th scope="row" { a href={ "/explain?" (query) } { (outside(&answer.route)) } div { (parameters(&answer.input)) } }
            td data-label="State" { div { (state(answer)) } }
            td data-label="Sets" { div { @if let Some(stored) = &answer.stored { (stored.parameter_sets) } } }
            td data-label="Stored" { div { @if let Some(stored) = &answer.stored { (since(now, &stored.stored_at)) } } }
            td data-label="Requested by" {
                div { @for (index, name) in answer.requesters.iter().enumerate() { @if index > 0 { ", " } (outside(name)) } }
            }
        }
    }
}

/// The state of a remembered answer, in words.
pub(super) fn state(answer: &RememberedAnswer) -> Markup {
    html! {
        span.states {
        @if answer.held.is_some() { span.state.danger { "held" } " " }
        @match &*answer.state {
            "fresh" => span.state.good { "fresh" },
            "stale_while_revalidate" => span.state { "older, being renewed" },
            "stale_if_error" => span.state.warn { "older, if the source fails" },
            "expired" => span.state.warn { "expired" },
            "failing" => span.state.warn { "failing" },
            "none" => span.state { "unknown" },
            other => span.state { (outside(other)) },
        }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_are_read_as_they_are_written() {
        for parameters in [
            json!({}),
            json!({"branch": "a=b", "empty": ""}),
            json!({"n": 1, "nested": {"x": [true]}}),
            json!({"two": "a\nb"}),
            json!({"a=b": "c"}),
            json!({" a": " b "}),
            json!({"{": "x"}),
            json!({"x": "\u{202e}<script>"}),
        ] {
            let Value::Object(parameters) = parameters else { panic!() };
            let form = QuestionForm { parameters: written(&parameters), ..QuestionForm::default() };
            assert_eq!(form.read().as_ref(), Ok(&parameters), "{form:?}");
        }
        let read = |text: &str| QuestionForm { parameters: text.to_owned(), ..QuestionForm::default() }.read();
        assert_eq!(read("\n a = b \r\n\n").unwrap(), *json!({"a": "b"}).as_object().unwrap());
        for wrong in ["a", "{", "{} {}", "{\"a\":1,\"a\":2}"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
