//! The `ValidatingAdmissionPolicy` in `deploy/`: it lets the gateway change one annotation and nothing else. Its CEL expressions are
//! evaluated as the API server does it: conditions first, then variables, then validations.

use std::path::Path;

use cel::{Context, Program};

use super::*;

const GATEWAY: &str = "system:serviceaccount:appset-gateway:appset-gateway";
const REFRESH: &str = "argocd.argoproj.io/application-set-refresh";

/// The spec of the policy.
fn policy() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/kustomize/push/policy.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let first = text.split("\n---").next().unwrap();
    serde_saphyr::from_str::<Value>(first).unwrap()["spec"].clone()
}

fn evaluate(expression: &Value, context: &Context) -> Value {
    let program = Program::compile(expression.as_str().unwrap()).unwrap();
    program.execute(context).unwrap_or_else(|error| panic!("{expression}: {error}")).json().unwrap()
}

/// Whether the policy lets `user` replace `before` by `after`.
fn allows(user: &str, before: &Value, after: &Value) -> bool {
    let policy = policy();
    let mut context = Context::default();
    for (name, value) in
        [("object", after), ("oldObject", before), ("request", &json!({"userInfo": {"username": user}}))]
    {
        context.add_variable(name, value.clone()).unwrap();
    }
    let list = |key: &str| policy[key].as_array().unwrap().clone();
    if list("matchConditions").iter().any(|condition| evaluate(&condition["expression"], &context) == json!(false)) {
        return true;
    }
    let mut variables = json!({});
    for variable in list("variables") {
        variables[variable["name"].as_str().unwrap()] = evaluate(&variable["expression"], &context);
    }
    context.add_variable("variables", variables).unwrap();
    // The API server refuses a request when an expression fails, too (`failurePolicy: Fail`).
    list("validations").iter().all(|validation| evaluate(&validation["expression"], &context) == json!(true))
}

#[test]
fn the_gateway_may_change_one_annotation_and_nothing_else() {
    let plain = json!({"metadata": {"name": "a", "resourceVersion": "1"}, "spec": {"template": {"name": "x"}}});
    let with = |change: &dyn Fn(&mut Value)| {
        let mut changed = plain.clone();
        change(&mut changed);
        changed
    };
    let refreshed = with(&|set| set["metadata"]["annotations"] = json!({REFRESH: "1"}));
    let annotated = with(&|set| set["metadata"]["annotations"] = json!({"team": "a"}));
    let both = with(&|set| set["metadata"]["annotations"] = json!({"team": "a", REFRESH: "1"}));
    let labelled = with(&|set| set["metadata"]["labels"] = json!({"team": "a"}));
    let owned = with(&|set| set["metadata"]["ownerReferences"] = json!([{"name": "b"}]));
    let finalized = with(&|set| set["metadata"]["finalizers"] = json!(["b"]));
    let other_spec = with(&|set| set["spec"]["template"]["name"] = json!("y"));
    for (before, after, is_allowed) in [
        (&plain, &refreshed, true),
        (&annotated, &both, true),
        (&both, &annotated, true),
        (&refreshed, &plain, true),
        (&plain, &annotated, false),
        (&annotated, &plain, false),
        (&both, &refreshed, false),
        (&plain, &labelled, false),
        (&labelled, &plain, false),
        (&plain, &owned, false),
        (&plain, &finalized, false),
        (&plain, &other_spec, false),
        (&Value::Null, &refreshed, false),
    ] {
        assert_eq!(allows(GATEWAY, before, after), is_allowed, "{before} -> {after}");
        assert!(
            allows("system:serviceaccount:argocd:argocd-server", before, after),
            "the policy is about the gateway only"
        );
    }
}
