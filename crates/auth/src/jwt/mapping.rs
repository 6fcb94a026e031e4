//! Turns a genuine token's claims into a caller: its name and its scope.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::config::JwtConfig;
use crate::{Allowance, Caller, Role, Scope};
use domain::{
    document::{DocumentError, kind_of, read_object},
    glob::escaped,
    problem::{Path, Problems},
};
use lang::{
    expression::{Expression, ExpressionError},
    scope::NameScope,
};

/// The longest name of a caller, in characters.
const MAX_NAME_CHARS: usize = 200;
/// The result of `scopes`.
const SCOPES: [&str; 2] = ["routes", "applicationSets"];
/// The most globs that one token's claims may give.
const MAX_GLOBS: usize = 256;

/// Why no caller can be made of a token's claims. The text may repeat them and is for the log only.
#[derive(Debug, thiserror::Error)]
pub(super) enum MappingError {
    /// `name` has no value.
    #[error("`name`: {0}")]
    Name(#[source] ClaimError),
    /// The value of `name` has this type.
    #[error("`name` gives {0}, not a string")]
    NameType(&'static str),
    /// The value of `name` is unfit.
    #[error("`name` gives a name that is empty, not printable or longer than {MAX_NAME_CHARS} characters")]
    UnfitName,
    /// `scopes` gives no scope.
    #[error("`scopes`: {0}")]
    Scopes(#[source] ClaimError),
}

/// Why an expression makes nothing of a token's claims.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClaimError {
    /// It does not fit them.
    #[error(transparent)]
    Expression(#[from] ExpressionError),
    /// It is not cheap with them.
    #[error("it takes too much time or memory with so large a token")]
    TooCostly,
    /// It gives something else than a scope.
    #[error("it must give {{'routes': [globs], 'applicationSets': [globs]}}: {0}")]
    NotAScope(#[source] DocumentError),
    /// It gives too many globs.
    #[error("it gives more than {MAX_GLOBS} globs")]
    TooManyGlobs,
    /// It gives texts that are not globs; the text has the reasons.
    #[error("{0}")]
    Globs(String),
}

/// From claims to a caller.
#[derive(Debug)]
pub(super) struct Mapping {
    name: Expression,
    role: Role,
    scope: ScopeOf,
    allowance: Arc<Allowance>,
}

/// The source of a scope.
#[derive(Debug)]
enum ScopeOf {
    /// The configuration: all tokens have the same scope.
    Issuer(Scope),
    /// The claims.
    Claims(Expression),
}

/// The result of `scopes`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EvaluatedScope {
    routes: Vec<String>,
    application_sets: Option<Vec<String>>,
}

impl Mapping {
    /// Checks the names and scopes of `config`.
    pub(super) fn build(config: &JwtConfig, path: &Path, problems: &mut Problems) -> Option<Self> {
        let name = expression(&config.name, &path.key("name"), problems);
        let scope = match &config.scopes {
            None => config.grants(config.role).scope(path, problems).map(ScopeOf::Issuer),
            Some(scopes) => {
                let at = path.key("scopes");
                if config.routes.is_some() || config.application_sets.is_some() {
                    problems
                        .error(&at, "it replaces `routes` and `applicationSets`, so it cannot be combined with them");
                }
                if config.role != Role::Caller {
                    let message = format!("the role `{}` may not call routes", config.role.as_str());
                    problems.error_with_help(&at, message, "leave `scopes` out");
                }
                expression(scopes, &at, problems).map(ScopeOf::Claims)
            }
        };
        let allowance = config.grants(config.role).allowance(path, problems);
        Some(Self { name: name?, role: config.role, scope: scope?, allowance })
    }

    /// The limits of its callers.
    pub(crate) const fn allowance(&self) -> &Arc<Allowance> {
        &self.allowance
    }

    /// The same, for replacing it.
    pub(crate) const fn allowance_mut(&mut self) -> &mut Arc<Allowance> {
        &mut self.allowance
    }

    /// The name of the caller with these `claims`.
    ///
    /// # Errors
    /// When the claims do not fit.
    pub(super) fn name(&self, claims: &Value) -> Result<String, MappingError> {
        let name = evaluate(&self.name, claims).map_err(MappingError::Name)?;
        let Value::String(name) = name else {
            return Err(MappingError::NameType(kind_of(&name)));
        };
        if name.is_empty() || name.chars().any(char::is_control) || name.chars().count() > MAX_NAME_CHARS {
            return Err(MappingError::UnfitName);
        }
        Ok(name)
    }

    /// The caller with these `claims`.
    ///
    /// # Errors
    /// When the claims do not fit.
    pub(super) fn caller(&self, claims: &Value) -> Result<Caller, MappingError> {
        let name = self.name(claims)?;
        let scope = match &self.scope {
            ScopeOf::Issuer(scope) => scope.clone(),
            ScopeOf::Claims(expression) => {
                let evaluated = scopes(expression, claims).and_then(scope_of);
                evaluated.map_err(MappingError::Scopes)?
            }
        };
        Ok(Caller::new(name, self.role, scope, Arc::clone(&self.allowance)))
    }
}

/// The value of `scopes`. A claim that is a glob by itself counts as one: the issuer wrote it. In a glob that the expression puts together, such as
/// `group + '-*'`, a claim matches itself only: a group called `*` does not match all groups.
fn scopes(expression: &Expression, claims: &Value) -> Result<Value, ClaimError> {
    let mut evaluated = evaluate(expression, claims)?;
    let made: Vec<&str> = SCOPES.into_iter().filter(|key| expression.composes(key)).collect();
    let literal = literal_claims(claims);
    if made.is_empty() || literal == *claims {
        return Ok(evaluated);
    }
    let composed = evaluate(expression, &literal)?;
    for key in made {
        if let (Some(evaluated), Some(composed)) = (evaluated.get_mut(key), composed.get(key)) {
            *evaluated = composed.clone();
        }
    }
    Ok(evaluated)
}

/// `claims` with globs that match them in place of all texts.
fn literal_claims(claims: &Value) -> Value {
    match claims {
        Value::String(text) => Value::String(escaped(text)),
        Value::Array(items) => items.iter().map(literal_claims).collect(),
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), literal_claims(value))).collect(),
        other => other.clone(),
    }
}

fn scope_of(evaluated: Value) -> Result<Scope, ClaimError> {
    let EvaluatedScope { routes, application_sets } = read_object(evaluated).map_err(ClaimError::NotAScope)?;
    if routes.len().max(application_sets.as_ref().map_or(0, Vec::len)) > MAX_GLOBS {
        return Err(ClaimError::TooManyGlobs);
    }
    let mut problems = Problems::default();
    let scope = Scope::build(Role::Caller, Some(&routes), application_sets.as_deref(), &Path::root(), &mut problems);
    let messages = problems.into_vec().into_iter().map(|problem| format!("{}: {}", problem.path, problem.message));
    scope.ok_or_else(|| ClaimError::Globs(messages.collect::<Vec<_>>().join("; ")))
}

/// Evaluates `expression` over `claims`, if that is cheap. A token may have very large claims.
fn evaluate(expression: &Expression, claims: &Value) -> Result<Value, ClaimError> {
    let value = expression.evaluate_at_once(&[("claims", &claims.into())]);
    Ok(value.ok_or(ClaimError::TooCostly)??)
}

/// Compiles an expression that any token may be evaluated with.
fn expression(source: &str, path: &Path, problems: &mut Problems) -> Option<Expression> {
    let (compiled, _) = Expression::build(source, &NameScope::of(&["claims"]), path, problems)?;
    if compiled.is_nested() {
        problems.error_with_help(
            path,
            "it goes through a list for each item of another, which a token can make very long work",
            "use `in`: claims.groups.filter(g, g in ['a', 'b'])",
        );
    }
    Some(compiled)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn build(more: &Value) -> (Option<Mapping>, Vec<String>) {
        let mut config = json!({"issuer": "i", "audience": "a", "algorithms": ["RS256"]});
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut problems = Problems::default();
        let mapping = Mapping::build(&serde_json::from_value(config).unwrap(), &Path::root(), &mut problems);
        let messages = problems.into_vec().into_iter().map(|problem| format!("{}: {}", problem.path, problem.message));
        (mapping, messages.collect())
    }

    fn caller(config: &Value, claims: &Value) -> Result<Caller, String> {
        let (mapping, messages) = build(config);
        assert_eq!(messages, Vec::<String>::new(), "{config}");
        mapping.unwrap().caller(claims).map_err(|error| error.to_string())
    }

    #[test]
    fn the_default_name_is_the_subject() {
        let claims = json!({"sub": "s", "email": "a@b.example", "groups": ["x"]});
        let all = caller(&json!({}), &claims).unwrap();
        assert_eq!((all.name.as_str(), all.role), ("s", Role::Caller));
        assert!(all.may_ask("any") && all.may_ask_for("any"));
        let named = caller(&json!({"name": "'mail:' + claims.email", "routes": ["pr-*"]}), &claims).unwrap();
        assert_eq!(named.name, "mail:a@b.example");
        assert!(named.may_ask("pr-1") && !named.may_ask("x"));
        assert_eq!(caller(&json!({"role": "admin"}), &claims).unwrap().role, Role::Admin);
    }

    #[test]
    fn scopes_come_from_claims() {
        let scopes = "{'routes': claims.groups.filter(g, g.startsWith('team-')).map(g, g + '-*'), 'applicationSets': [claims.sub + '-*']}";
        let of = |claims: &Value| caller(&json!({"scopes": scopes}), claims);
        let known = of(&json!({"sub": "a", "groups": ["team-x", "admins"]})).unwrap();
        assert!(known.may_ask("team-x-1") && !known.may_ask("admins-1") && !known.may_ask("team-y"));
        assert!(known.may_ask_for("a-1") && !known.may_ask_for("b-1"));
        let conditional = json!({"scopes": "{'routes': claims.sub == 'a' && claims.n > 1 ? ['*'] : []}"});
        assert!(caller(&conditional, &json!({"sub": "a", "n": 2})).unwrap().may_ask("r"));
        assert!(!caller(&conditional, &json!({"sub": "b", "n": 2})).unwrap().may_ask("r"));
        let nothing = of(&json!({"sub": "a", "groups": []})).unwrap();
        assert!(!nothing.may_ask("team-x-1"));
        assert!(of(&json!({"sub": "a"})).unwrap_err().starts_with("`scopes`: "));
    }

    #[test]
    fn a_claim_within_a_glob_stands_for_itself() {
        let scopes = "{'routes': claims.groups.filter(g, g.startsWith('team-')).map(g, g + '-*'), 'applicationSets': claims.sets}";
        let of = |groups: &Value, sets: &Value| {
            caller(&json!({"scopes": scopes}), &json!({"sub": "a", "groups": groups, "sets": sets}))
        };
        let hostile = of(&json!(["team-*", "team-{a,b}", "team-?", "team-[", "team-\\"]), &json!(["fb-*"])).unwrap();
        for name in ["team-x-1", "team-a-1", "team-b-1", "admins", "team-"] {
            assert!(!hostile.may_ask(name), "{name}");
        }
        for name in ["team-*-1", "team-{a,b}-1", "team-?-1", "team-[-1", "team-\\-1"] {
            assert!(hostile.may_ask(name), "{name}");
        }
        // What the issuer gives as a glob is one.
        assert!(hostile.may_ask_for("fb-1") && !hostile.may_ask_for("x"));
        assert!(of(&json!([]), &json!(["["])).unwrap_err().contains("applicationSets[0]"));
        for made in ["[claims.sub + '-x']", "[[claims.sub, 'x'].join('-')]", "['o-x'.replace('o', claims.sub)]"] {
            let all = caller(&json!({"scopes": format!("{{'routes': {made}}}")}), &json!({"sub": "*"})).unwrap();
            assert!(all.may_ask("*-x") && !all.may_ask("a-x"), "{made}");
        }
        for made in ["[claims.sub.split('@')[0]]", "[claims.sub.trim()]", "[claims.sub.lowerAscii()]"] {
            let sub = if made.contains('@') { "*@x.example" } else { "*" };
            let all = caller(&json!({"scopes": format!("{{'routes': {made}}}")}), &json!({"sub": sub})).unwrap();
            assert!(all.may_ask("*") && !all.may_ask("a"), "{made}");
        }
        let conditional = "claims.sub == '*' ? {'routes': ['x-*']} : {'routes': [claims.sub + '-*']}";
        let evaluated = caller(&json!({"scopes": conditional}), &json!({"sub": "?"})).unwrap();
        assert!(evaluated.may_ask("?-1") && !evaluated.may_ask("a-1"));
    }

    #[test]
    fn claims_that_do_not_fit_are_refused() {
        let many = json!({"sub": "a", "all": vec!["x"; 257]});
        for (config, claims, says) in [
            (json!({}), json!({}), "`name`: "),
            (json!({}), json!({"sub": ""}), "empty"),
            (json!({}), json!({"sub": 5}), "`name` gives a number"),
            (json!({}), json!({"sub": "a\nb"}), "not printable"),
            (json!({}), json!({"sub": "x".repeat(201)}), "longer than 200"),
            (json!({"scopes": "[]"}), json!({"sub": "a"}), "expected an object, found a list"),
            (json!({"scopes": "{'applicationSets': ['*']}"}), json!({"sub": "a"}), "missing field `routes`"),
            (json!({"scopes": "{'routes': '*'}"}), json!({"sub": "a"}), "must give"),
            (json!({"scopes": "{'routes': [1]}"}), json!({"sub": "a"}), "must give"),
            (json!({"scopes": "{'routes': [], 'route': []}"}), json!({"sub": "a"}), "unknown field `route`"),
            (json!({"scopes": "{'routes': claims.all}"}), many, "more than 256"),
        ] {
            let why = caller(&config, &claims).unwrap_err();
            assert!(why.contains(says), "{config} {claims}: {why}");
        }
    }

    #[test]
    fn a_wrong_configuration_is_a_problem() {
        for (config, path) in [
            (json!({"name": "claims."}), "name: "),
            (json!({"scopes": "{"}), "scopes: "),
            (json!({"scopes": "{'routes': []}", "routes": ["a"]}), "scopes: it replaces `routes`"),
            (json!({"scopes": "{'routes': []}", "role": "admin"}), "scopes: the role `admin` may not call routes"),
            (
                json!({"scopes": "{'routes': claims.a.map(a, claims.b.map(b, a + b))}"}),
                "scopes: it goes through a list",
            ),
            (json!({"routes": ["["]}), "routes[0]: "),
            (json!({"role": "admin", "routes": ["a"]}), "routes: the role `admin`"),
        ] {
            let messages = build(&config).1;
            assert!(messages.len() == 1 && messages[0].starts_with(path), "{config}: {messages:?}");
        }
    }
}
