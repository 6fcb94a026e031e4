//! What templates render, and what they refuse.

use super::*;

fn render(source: &str, place: ValueContext, branch: &str) -> Result<String, String> {
    let context = minijinja::context! { params => minijinja::context! { branch, list => [1, 2] } };
    let template = Template::parse(source, place, &NameScope::input()).map_err(|error| error.to_string())?;
    template.render(&context).map_err(|refusal| refusal.message)
}

#[test]
fn values_are_encoded_for_their_context() {
    let url = "https://h/a/{{ params.branch }}?b={{ params.branch }}";
    assert_eq!(
        render(url, ValueContext::Url, "x/y z&q=1").unwrap(),
        "https://h/a/x%2Fy%20z%26q%3D1?b=x%2Fy%20z%26q%3D1"
    );
    assert_eq!(render("{{ params.branch }}", ValueContext::Text, "x/y").unwrap(), "x/y");
    assert_eq!(render("r/f:{{ params.branch | tag }}", ValueContext::Reference, "feat/x@1").unwrap(), "r/f:feat-x-1");
    let error = render("r/f:{{ params.branch }}", ValueContext::Reference, "m@sha256:00").unwrap_err();
    assert!(error.contains("cannot be in an image reference"), "{error}");
}

#[test]
fn a_missing_name_is_named() {
    let error = render("{{ params.head_sha }}", ValueContext::Text, "b").unwrap_err();
    assert_eq!(error, "`params.head_sha` is not there, and `{{ params.head_sha }}` needs it");
    let error = render("{{ param.branch }}", ValueContext::Text, "b").unwrap_err();
    assert_eq!(error, "unknown name `param`; did you mean `params`?");
    let error = render("a\n{{ params.x }}\n", ValueContext::Text, "b").unwrap_err();
    assert_eq!(error, "`params.x` is not there, and `a {{ params.x }}` needs it");
    assert!(render("{{ params.branch", ValueContext::Text, "b").is_err());
    assert!(render("{{ params.list }}", ValueContext::Text, "b").unwrap_err().contains("tojson"));
}

#[test]
fn work_is_limited() {
    let loops = "{% for i in range(9000) %}{% for j in range(9000) %}x{% endfor %}{% endfor %}";
    let error = render(loops, ValueContext::Text, "b").unwrap_err();
    assert!(error.contains("fuel"), "{error}");
    assert!(render("{{ debug() }}", ValueContext::Text, "b").is_err());
}

#[test]
fn filters_say_which_value_they_refuse() {
    let error = render("r/f:{{ params.branch | sha8 }}", ValueContext::Reference, "main").unwrap_err();
    assert!(error.contains("`main` is not a commit"), "{error}");
    assert_eq!(render("{{ params.branch | slug }}", ValueContext::Text, "Feat/Ü_1").unwrap(), "feat-u-1");
}

#[test]
fn times_and_base64_are_those_of_expressions() {
    let at = "2026-01-01T12:00:00Z";
    for (source, expected) in [
        ("{{ timestamp(params.branch) + duration('1h') }}", "1767272400"),
        ("{{ (timestamp(params.branch) - duration('1d')) | date }}", "2025-12-31T12:00:00Z"),
        ("{{ timestamp(60) }}", "60"),
        ("{{ 'old' if timestamp(params.branch) < timestamp('2026-02-01T00:00:00Z') else 'new' }}", "old"),
        ("{{ params.branch | b64encode | b64decode }}", at),
        ("{{ 'foobar' | b64encode }}", "Zm9vYmFy"),
    ] {
        assert_eq!(render(source, ValueContext::Text, at), Ok(expected.to_owned()), "{source}");
        let template = Template::parse(source, ValueContext::Text, &NameScope::input()).unwrap();
        let context = minijinja::context! { params => minijinja::context! { branch => at } };
        assert_eq!(template.render_small(&context), Some(Ok(expected.to_owned())), "{source} is cheap");
    }
    for (source, says) in [
        ("{{ timestamp(params.branch) }}", "`b` is not a time of RFC 3339"),
        ("{{ timestamp(1.5) }}", "`timestamp` takes a text, or a whole number of seconds"),
        ("{{ duration(params.branch) }}", "`b` is not a duration"),
        ("{{ params.branch | b64decode }}", "it is not base64"),
        ("{{ timestamp(params.none) }}", "`params.none` is not there"),
    ] {
        let error = render(source, ValueContext::Text, "b").unwrap_err();
        assert!(error.contains(says), "{source}: {error}");
    }
}

#[test]
fn a_name_is_limited() {
    for (source, branch, expected) in [
        ("{{ params.branch | name }}", "Main", "main-eb814be3"),
        ("x-{{ params.branch | name(20) }}", "feature/login", "x-feature-log-df7c7aeb"),
        ("{{ params.branch | name(20) }}", "main", "main"),
    ] {
        assert_eq!(render(source, ValueContext::Text, branch), Ok(expected.to_owned()), "{source}");
        let template = Template::parse(source, ValueContext::Text, &NameScope::input()).unwrap();
        assert!(template.makes_name(), "{source}");
    }
    let error = render("{{ params.branch | name(64) }}", ValueContext::Text, "b").unwrap_err();
    assert!(error.contains("from 10 to 63 characters, not 64"), "{error}");
    assert!(
        !Template::parse("{{ params.name | slug }}", ValueContext::Text, &NameScope::input()).unwrap().makes_name()
    );
}
