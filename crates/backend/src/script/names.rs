//! Finds environment variables that collide by configuration alone, so that the start fails and not the first request.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Config, environment, worker::Mode};
use crate::Building;

/// Notes problems with the names in `config`, and with those of the route's parameters that become variables.
pub(super) fn check(config: &Config, building: &mut Building<'_>) {
    let Building { path, problems, context, .. } = building;
    let env = path.key("env");
    for name in config.env.keys() {
        if name.is_empty() || name.contains(['=', '\0']) {
            problems.error(
                &env.key(name),
                "the name of an environment variable must not be empty and must not contain `=`",
            );
        }
        if name == environment::PARAMETERS {
            problems.error(&env.key(name), "this variable holds the call's parameters");
        }
        let alias = environment::alias(name);
        if config.env.contains_key(&alias) || config.inherit_env.contains(&alias) {
            let error = format!("`{name}` is also passed on as {alias}, which is configured too");
            problems.error_with_help(&env.key(name), error, "rename one");
        }
    }
    for (index, name) in config.inherit_env.iter().enumerate() {
        if name == environment::PARAMETERS {
            problems.error(&path.key("inheritEnv").index(index), "this variable holds the call's parameters");
        }
    }
    if config.mode == Mode::Worker {
        // A worker gets requests on stdin only.
        return;
    }
    let Some(route_path) = path.parent().and_then(|path| path.parent()) else { return };
    let declared = context.raw.get("input").and_then(Value::as_array).into_iter().flatten();
    let mut seen = BTreeMap::new();
    for (index, parameter) in declared.enumerate() {
        let Some(name) = parameter.get("name").and_then(Value::as_str) else { continue };
        let path = route_path.key("input").index(index).key("name");
        let variable = environment::variable(name);
        let has_parts = matches!(parameter.get("type").and_then(Value::as_str), Some("array" | "map"));
        let is_configured = config.env.contains_key(&variable) || config.inherit_env.contains(&variable);
        if is_configured && !has_parts {
            let error =
                format!("the parameter `{name}` would be the variable {variable}, which the script's backend sets");
            problems.error_with_help(&path, error, "rename one");
        }
        if let Some(other) = seen.insert(variable.clone(), name).filter(|other| *other != name) {
            let error = format!("the parameters `{other}` and `{name}` would both be the variable {variable}");
            problems.error_with_help(&path, error, "rename one");
        }
    }
}
