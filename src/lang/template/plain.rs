//! Plain templates of texts and names alone, such as `https://h/v1/{{ params.branch }}`. Most templates are plain, and do not
//! need minijinja.

use std::fmt::Write;

use minijinja::{Error, Value};
use percent_encoding::utf8_percent_encode;

use super::{MAX_TEXT_BYTES, RESERVED, ValueContext, printable, reference_part};

/// The texts and names of a plain template, in order.
#[derive(Debug)]
pub(crate) struct PlainTemplate(Vec<Piece>);

#[derive(Debug)]
enum Piece {
    Text(String),
    /// The parts of a dotted name.
    Name(Vec<String>),
}

impl PlainTemplate {
    /// `source`, if it is plain. `is_name` distinguishes names from keywords.
    pub(crate) fn parse(source: &str, is_name: impl Fn(&str) -> bool) -> Option<Self> {
        // minijinja drops the newline at the end of a template.
        if source.contains("{%") || source.contains("{#") || source.ends_with(['\n', '\r']) {
            return None;
        }
        let (mut pieces, mut rest) = (Vec::new(), source);
        while let Some((before, after)) = rest.split_once("{{") {
            let (name, next) = after.split_once("}}")?;
            let name = name.trim();
            let parts = name.split('.').map(str::to_owned).collect();
            if !is_name(name) {
                return None;
            }
            pieces.extend([Piece::Text(before.to_owned()), Piece::Name(parts)]);
            rest = next;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Some(Self(pieces))
    }

    /// The text with the variables of `context`. `None` on an error, which minijinja words, or for a very long text.
    pub(crate) fn render(&self, context: &Value, place: ValueContext) -> Option<String> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(own) => text.push_str(own),
                Piece::Name(parts) => {
                    let (first, others) = parts.split_first()?;
                    let value =
                        others.iter().try_fold(context.get_attr(first).ok()?, |value, part| value.get_attr(part).ok());
                    write(&mut text, &value?, place).ok()?;
                }
            }
            if text.len() > MAX_TEXT_BYTES {
                return None;
            }
        }
        Some(text)
    }
}

/// Writes `value` as `place` demands.
pub(crate) fn write(out: &mut impl Write, value: &Value, place: ValueContext) -> Result<(), Error> {
    let text = printable(value)?;
    match place {
        ValueContext::Text => out.write_str(&text)?,
        ValueContext::Url => write!(out, "{}", utf8_percent_encode(&text, RESERVED))?,
        ValueContext::Reference => out.write_str(reference_part(&text)?)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use minijinja::context;

    use super::{super::Template, *};

    #[test]
    fn plain_templates_give_the_same_as_minijinja() {
        let context = context! {
            params => context! {
                text => "a/b c", number => 7, float => 1.5, yes => true, nothing => (), list => vec![1], map => context! { x => "y" },
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
                let mut template = Template::compile(source, place).unwrap();
                let quick = template.plain.as_ref().and_then(|plain| plain.render(&context, place));
                template.plain = None;
                let machine = template.render(&context);
                assert!(quick.is_none() || quick == machine.clone().ok(), "{source}: {quick:?}, {machine:?}");
                assert_eq!(quick.is_some(), is_plain && machine.is_ok(), "{source}: {machine:?}");
            }
        }
    }
}
