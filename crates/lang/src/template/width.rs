//! minijinja's filters that widen a text by a number, which may be a parameter. Neither fuel nor minijinja limits them.

use minijinja::{
    Error, State, Value, filters,
    value::{Kwargs, Rest, StringInput, ValueOrKwargs},
};

use super::refused;

/// The largest width that a number may demand, in characters.
const MAX_WIDTH_CHARS: usize = 1000;

/// `format`, with widths and precisions up to [`MAX_WIDTH_CHARS`].
///
/// # Errors
/// When a width is larger, and minijinja's own errors.
pub(super) fn format(state: &mut State, text: &Value, values: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    if text.as_str().is_some_and(|text| text.split('%').skip(1).any(is_wide)) {
        return Err(too_wide("format"));
    }
    filters::format(state, text, values)
}

/// Whether the conversion at the start of `text`, after its `%`, is wide: by a number, or by the value of a `*`.
fn is_wide(text: &str) -> bool {
    let named = text.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    let text = named.map_or(text, |(_, rest)| rest);
    let flags = text.split(|c: char| c.is_ascii_alphabetic()).next().unwrap_or_default();
    let mut numbers = flags.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    flags.contains('*') || numbers.any(|digits| digits.parse::<usize>().map_or(true, |number| number > MAX_WIDTH_CHARS))
}

/// `indent`, by at most [`MAX_WIDTH_CHARS`] characters.
///
/// # Errors
/// When the indentation is larger, and minijinja's own errors.
pub(super) fn indent(
    text: StringInput<'_>,
    width: Option<usize>,
    first: Option<bool>,
    blank: Option<bool>,
    named: Kwargs,
) -> Result<Value, Error> {
    let named_width: Option<usize> = named.peek("width")?;
    if width.or(named_width).is_some_and(|width| width > MAX_WIDTH_CHARS) {
        return Err(too_wide("indent"));
    }
    filters::indent(text, width, first, blank, named)
}

fn too_wide(filter: &str) -> Error {
    refused(format!("`{filter}` makes a text at most {MAX_WIDTH_CHARS} characters wider"))
}

#[cfg(test)]
mod tests {
    use crate::{
        scope::NameScope,
        template::{Template, ValueContext},
    };

    #[test]
    fn a_number_cannot_make_an_endless_text() {
        let render = |source: &str| {
            let context = minijinja::context! { params => minijinja::context! { n => 999_999_999, text => "a\nb" } };
            Template::parse(source, ValueContext::Text, &NameScope::input()).unwrap().render(&context)
        };
        for (source, text) in [
            ("{{ '%05d' | format(7) }}", "00007"),
            ("{{ '%(n2000)s of 2000 * 2' | format(n2000=3) }}", "3 of 2000 * 2"),
            ("{{ params.text | indent(2) }}", "a\n  b"),
            ("{{ params.text | indent(width=2, first=true) }}", "  a\n  b"),
            ("{{ '%999999999d' | format(1) }}", "`format`"),
            ("{{ '%.99999999999999999999999f' | format(1.5) }}", "`format`"),
            ("{{ '%*d' | format(params.n, 1) }}", "`format`"),
            ("{{ '%d%(x)999999999d' | format(1, 2) }}", "`format`"),
            ("{{ ('%' ~ params.n ~ 'd') | format(1) }}", "`format`"),
            ("{{ params.text | indent(params.n) }}", "`indent`"),
            ("{{ params.text | indent(width=params.n) }}", "`indent`"),
        ] {
            let rendered = render(source).unwrap_or_else(|refusal| refusal.message);
            let is_refused = text.starts_with('`') && rendered.contains(&format!("{text} makes a text at most"));
            assert!(rendered == text || is_refused, "{source}: {rendered}");
        }
    }
}
