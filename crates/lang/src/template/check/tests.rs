use minijinja::ErrorKind;

use super::*;
use crate::{
    scope::ValueType,
    template::{Template, ValueContext, environment},
};

fn mistakes(source: &str, scope: &NameScope) -> Vec<String> {
    let mut problems = Problems::default();
    let template = Template::parse_open(source).unwrap();
    template.check(scope, &Path::root(), &mut problems);
    let line = |help: Option<String>| help.unwrap_or_default();
    problems.into_vec().into_iter().map(|problem| format!("{}: {}", problem.message, line(problem.help))).collect()
}

#[test]
fn what_does_not_exist_is_found_with_the_nearest_name() {
    let scope = NameScope::input().with("params", ValueType::object(["branch"]));
    for (source, found) in [
        ("{{ params.branch | slg }}", "there is no filter `slg`: did you mean `slug`?"),
        ("{% if params.branch is defind %}x{% endif %}", "there is no test `defind`: did you mean `defined`?"),
        ("{{ rnge(3) | join }}", "there is no function `rnge`: did you mean `range`?"),
        ("{{ slug(params.branch) }}", "there is no function `slug`: write it as a filter: `{{ value | slug }}`"),
        ("{{ params.branch.upper() }}", "values have no method `upper`: write it as a filter: `{{ value | upper }}`"),
        ("{{ params.brnch }}", "the parameter `brnch` is not declared in `input`: did you mean `branch`?"),
        ("{{ parms.x }}", "unknown name `parms`: did you mean `params`?"),
        ("{{ params['brnch'] }}", "the parameter `brnch` is not declared in `input`: did you mean `branch`?"),
        (
            "{{ params.branch | replace('a') }}",
            "the filter `replace` needs more arguments: write `replace('old', 'new')`",
        ),
        (
            "{% if params.branch is divisibleby %}x{% endif %}",
            "the test `divisibleby` needs more arguments: write them after its name: `divisibleby(…)`",
        ),
        (
            "{{ 'main' | sha8 }}",
            "`{{ 'main' | sha8 }}`: `main` is not a commit: 8 to 64 hexadecimal digits: correct it: it fails for all calls",
        ),
    ] {
        assert!(mistakes(source, &scope).contains(&found.to_owned()), "{source}: {:?}", mistakes(source, &scope));
    }
    let open = scope.with_keys_of(&ValueType::Anything);
    assert_eq!(mistakes("{{ parms.x }}", &open), ["`parms` is taken for a key of the items: did you mean `params`?"]);
    for good in [
        "{% for n in range(3) %}{{ loop.index }}{{ loop.cycle('a', 'b') }}{{ n }}{% endfor %}",
        "{% set x = params.branch %}{% with y = x %}{{ y | tag }}{% endwith %}",
        "{{ params.branch if params.branch is defined and params.branch != 'x' else applicationSet | sha8 }}",
        "{% if params.branch %}{% set e = 'a' %}{% else %}{% set e = 'b' %}{% endif %}{{ e }}",
        "{{ params['branch'] }}{% for params in [{'x': 1}] %}{{ params['x'] }}{% endfor %}",
        "{% with p = {'x': 1} %}{{ p['x'] }}{% endwith %}{{ params.branch | replace('a', 'b') }}",
        "{% filter upper %}{{ [1, 2][0:1] | map('abs') | join(params.branch) }}{% endfilter %}",
    ] {
        assert_eq!(mistakes(good, &scope), [""; 0], "{good}");
    }
    assert_eq!(mistakes("{{ name }}{{ cluster.name }}", &open), [""; 0]);
}

/// docs/configuration.md lists what templates can call, and no more.
#[test]
fn the_documentation_lists_filters_tests_and_functions() {
    let lines = include_str!("../../../../../docs/configuration.md").lines();
    let rows = lines.skip_while(|line| *line != "| kind | names |").skip(2).take_while(|line| line.starts_with('|'));
    // The first cell has an example.
    let shown: Vec<Vec<&str>> = rows.map(|row| row.split('`').skip(3).step_by(2).collect()).collect();
    assert_eq!(shown, [FILTERS, TESTS, FUNCTIONS]);
}

#[test]
fn the_lists_are_those_of_minijinja() {
    let environment = environment(ValueContext::Text);
    let error = |source: &str| environment.compile_expression(source).unwrap().eval(()).err();
    let is_unknown = |source: &str, kind| error(source).is_some_and(|error| error.kind() == kind);
    for name in FILTERS {
        assert!(!is_unknown(&format!("1 | {name}"), ErrorKind::UnknownFilter), "{name}");
    }
    for name in TESTS {
        assert!(!is_unknown(&format!("1 is {name}"), ErrorKind::UnknownTest), "{name}");
    }
    let globals: BTreeSet<String> = environment.globals().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(globals, FUNCTIONS.iter().map(|name| (*name).to_owned()).collect());
    assert!(is_unknown("1 | no_such_filter", ErrorKind::UnknownFilter));
    for method in ["keys()", "items()", "get('a')", "upper()"] {
        assert!(is_unknown(&format!("{{'a': 1}}.{method}"), ErrorKind::UnknownMethod), "{method}");
    }
}
