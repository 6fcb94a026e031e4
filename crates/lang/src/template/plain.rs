//! Plain templates, with only texts and names, such as `https://h/v1/{{ params.branch }}`. Most templates are plain, and do not
//! need minijinja.

use std::fmt::Write;

use minijinja::{Error, ErrorKind, Value, value::ValueKind};
use percent_encoding::utf8_percent_encode;
use serde_json::{Map, Value as Json};

use super::{MAX_TEXT_BYTES, RESERVED, ValueContext, names, number, reference_part, refused};
use crate::functions::name_error::NameError;

/// The longest text that goes through a filter here, in bytes. minijinja filters longer ones, which its limits count.
const MAX_FILTERED_BYTES: usize = 1024;

/// The texts and names of a plain template, in order.
#[derive(Debug)]
pub(super) struct PlainTemplate(Vec<Piece>);

#[derive(Debug)]
enum Piece {
    Text(String),
    /// The parts of a dotted name, and the filter.
    Name(Vec<String>, Option<Filter>),
}

/// A filter for names, which takes a text and returns a text.
type Filter = fn(&str) -> Result<String, NameError>;

/// A variable that is known as JSON.
#[derive(Debug, Clone, Copy)]
pub enum JsonVariable<'a> {
    /// A text.
    Text(&'a str),
    /// An object.
    Object(&'a Map<String, Json>),
}

impl<'a> JsonVariable<'a> {
    /// `value`, if it is a text or an object.
    pub fn of(value: &'a Json) -> Option<Self> {
        match value {
            Json::String(text) => Some(Self::Text(text)),
            Json::Object(object) => Some(Self::Object(object)),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Array(_) => None,
        }
    }

    fn get(self, part: &String) -> Option<Self> {
        if let Self::Object(object) = self { Self::of(object.get(part)?) } else { None }
    }
}

impl PlainTemplate {
    /// `source`, if it is plain. `is_name` distinguishes names from keywords.
    pub(super) fn parse(source: &str, is_name: impl Fn(&str) -> bool) -> Option<Self> {
        // minijinja drops the newline at the end of a template.
        if source.contains("{%") || source.contains("{#") || source.ends_with(['\n', '\r']) {
            return None;
        }
        let (mut pieces, mut rest) = (Vec::new(), source);
        while let Some((before, after)) = rest.split_once("{{") {
            let (inner, next) = after.split_once("}}")?;
            let (name, filter) = match inner.split_once('|') {
                Some((name, filter)) => (name.trim(), Some(filter_called(filter.trim())?)),
                None => (inner.trim(), None),
            };
            let parts = name.split('.').map(str::to_owned).collect();
            if !is_name(name) {
                return None;
            }
            pieces.extend([Piece::Text(before.to_owned()), Piece::Name(parts, filter)]);
            rest = next;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Some(Self(pieces))
    }

    /// The text with the variables of `context`. `None` on an error, which minijinja words, or for a very long text.
    pub(super) fn render(&self, context: &Value, place: ValueContext) -> Option<String> {
        self.render_with(|parts, filter, text| {
            let (first, others) = parts.split_first()?;
            let value =
                others.iter().try_fold(context.get_attr(first).ok()?, |value, part| value.get_attr(part).ok())?;
            match filter {
                None => write(text, &value, place).ok(),
                Some(filter) => write_text(text, &filtered(filter, value.as_str()?)?, place).ok(),
            }
        })
    }

    /// The text with the variables that `find` finds by their names. `None` if it does not find all, or if one is not a text.
    /// Then the others may still be rendered by [`Self::render`], which makes the same text where both make one.
    pub(super) fn render_json<'a>(
        &self,
        find: impl Fn(&str) -> Option<JsonVariable<'a>>,
        place: ValueContext,
    ) -> Option<String> {
        self.render_with(|parts, filter, text| {
            let (first, others) = parts.split_first()?;
            let found = others.iter().try_fold(find(first)?, JsonVariable::get)?;
            let JsonVariable::Text(value) = found else { return None };
            match filter {
                None => write_text(text, value, place).ok(),
                Some(filter) => write_text(text, &filtered(filter, value)?, place).ok(),
            }
        })
    }

    /// The texts, and between them the output of `write` for each name.
    fn render_with(&self, write: impl Fn(&[String], Option<Filter>, &mut String) -> Option<()>) -> Option<String> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(own) => text.push_str(own),
                Piece::Name(parts, filter) => write(parts, *filter, &mut text)?,
            }
            if text.len() > MAX_TEXT_BYTES {
                return None;
            }
        }
        Some(text)
    }
}

/// The filter `name`, if it is one of those for names.
fn filter_called(name: &str) -> Option<Filter> {
    match name {
        "tag" => Some(names::tag),
        "ref_slug" => Some(names::ref_slug),
        "slug" => Some(names::slug),
        "sha8" => Some(names::sha8),
        "name" => Some(names::name),
        _ => None,
    }
}

fn filtered(filter: Filter, text: &str) -> Option<String> {
    if text.len() > MAX_FILTERED_BYTES { None } else { filter(text).ok() }
}

/// Writes `value` as `place` demands.
pub(super) fn write(out: &mut impl Write, value: &Value, place: ValueContext) -> Result<(), Error> {
    write_text(out, &printable(value)?, place)
}

/// A scalar as text. Lists and maps are refused, since they have no obvious text.
fn printable(value: &Value) -> Result<String, Error> {
    if let Some(number) = number::text(value) {
        return Ok(number.to_owned());
    }
    match value.kind() {
        ValueKind::Undefined => Err(Error::from(ErrorKind::UndefinedError)),
        // Jinja writes `True`; the input, Argo CD and most APIs write `true`.
        ValueKind::Bool => Ok(value.is_true().to_string()),
        ValueKind::Number => match number::text_of_float(value)? {
            Some(text) => Ok(text),
            None => Ok(value.to_string()),
        },
        ValueKind::String => Ok(value.to_string()),
        ValueKind::None => Err(refused("a null value cannot be in text")),
        kind => Err(refused(format!("a {kind} cannot be in text; pick a part of it, or use `| tojson`"))),
    }
}

/// Writes `text` as `place` demands.
fn write_text(out: &mut impl Write, text: &str, place: ValueContext) -> Result<(), Error> {
    match place {
        ValueContext::Text => out.write_str(text)?,
        ValueContext::Url => {
            for part in utf8_percent_encode(text, RESERVED) {
                out.write_str(part)?;
            }
        }
        ValueContext::Reference => out.write_str(reference_part(text)?)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use minijinja::{context, value::Serde};
    use proptest::prelude::{Just, Strategy, any, prop, prop_assert, prop_oneof, proptest};

    use super::{super::Template, *};

    #[test]
    fn plain_templates_give_the_same_as_minijinja() {
        let context = context! {
            params => context! {
                text => "a/b c", number => 7, float => 1.5, yes => true, nothing => (), list => vec![1], map => context! { x => "y" },
                commit => "0123456789abcdef0123456789abcdef01234567", long => "x".repeat(MAX_FILTERED_BYTES + 1),
            },
            top => "t",
        };
        let sources = [
            "",
            "plain",
            "{{ params.text }}",
            "a{{params.text}}b{{ top }}c",
            "{{ params.number }}{{ params.float }}{{ params.yes }}",
            "{{ params.map.x }}",
            "x\n{{ top }}",
            "}} {{ top }}",
            "{{ params.text | tag }}-{{ params.map.x|slug }}",
            "{{ params.commit | sha8 }}",
        ];
        let others = [
            "{{ top }}\n",
            "{{ top }}\r",
            "{{ params.nothing }}",
            "{{ params.list }}",
            "{{ params.map }}",
            "{{ params.none }}",
            "{{ none.x }}",
            "{{ params.text | upper }}",
            "{{ params.text | tag | slug }}",
            "{{ params.text | tag() }}",
            "{{ params.text | sha8 }}",
            "{{ params.number | tag }}",
            "{{ params.none | tag }}",
            "{{ params.long | slug }}",
            "{{ 'x' | tag }}",
            "{{- top -}}",
            "{{ 'x' }}",
            "{{ true }}",
            "{{ params.list[0] }}",
            "{{ params['text'] }}",
            "{% if top %}x{% endif %}",
            "{# top #}x",
            "{{ '}}' }}",
        ];
        for place in [ValueContext::Text, ValueContext::Url, ValueContext::Reference] {
            for (source, is_plain) in sources.map(|it| (it, true)).into_iter().chain(others.map(|it| (it, false))) {
                let mut template = Template::compile(source, place, None).unwrap();
                let quick = template.plain.as_ref().and_then(|plain| plain.render(&context, place));
                template.plain = None;
                let machine = template.render(&context);
                assert!(quick.is_none() || quick == machine.clone().ok(), "{source}: {quick:?}, {machine:?}");
                assert_eq!(quick.is_some(), is_plain && machine.is_ok(), "{source}: {machine:?}");
            }
        }
    }

    fn any_json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            "[a-zA-Z0-9./_ %\\u{e4}-]{0,12}".prop_map(Json::from),
            "[0-9a-f]{8,40}".prop_map(Json::from),
            any::<i32>().prop_map(Json::from),
            any::<bool>().prop_map(Json::from),
            Just(Json::Null),
        ];
        leaf.prop_recursive(2, 6, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..2).prop_map(Json::from),
                prop::collection::hash_map("[xy]", inner, 0..3).prop_map(|map| Json::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn variables_as_json_give_the_same_as_minijinja(variables in prop::collection::hash_map("[ab]", any_json(), 0..3)) {
            let context = Value::from(Serde(&variables));
            let find = |name: &str| variables.get(name).and_then(JsonVariable::of);
            let sources =
                ["{{ a }}", "{{ b.x }}/{{ a }}", "{{ a.x.y }}", "{{ a | tag }}", "v{{ b.y | slug }}", "{{ a | ref_slug }}", "{{ a | sha8 }}"];
            for source in sources {
                for place in [ValueContext::Text, ValueContext::Url, ValueContext::Reference] {
                    let mut template = Template::compile(source, place, None).unwrap();
                    let quick = template.render_json(find);
                    template.plain = None;
                    let machine = template.render(&context);
                    prop_assert!(quick.is_none() || quick == machine.clone().ok(), "{}: {:?}, {:?}", source, quick, machine);
                    let is_text = machine.is_ok() && !source.contains("| ") && template.names().all(|name| {
                        let mut parts = name.split('.');
                        let first = variables.get(parts.next().unwrap_or_default());
                        parts.try_fold(first, |value, part| Some(value?.get(part))).flatten().is_some_and(Json::is_string)
                    });
                    prop_assert!(quick.is_some() || !is_text, "{}: {:?}", source, machine);
                }
            }
        }
    }
}
