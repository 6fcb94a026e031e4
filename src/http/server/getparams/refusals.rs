//! The refusals of a call that depend on its caller or its route.

use crate::{
    app::Setup,
    http::server::{
        error::{ApiError, Code},
        request::GetParamsRequest,
        short,
    },
};
use auth::{Caller, Role};

/// There is no route for `call`.
pub(super) fn unknown_route(setup: &Setup, named: Option<&str>, call: &GetParamsRequest, caller: &Caller) -> ApiError {
    let open: Vec<&str> = setup.routes.iter().map(|route| &*route.name).filter(|name| caller.may_ask(name)).collect();
    let message = if let Some(name) = named {
        format!("there is no route `{}`; there are: {}", short(name), open.join(", "))
    } else {
        let parameters: Vec<String> = call.parameters.keys().take(20).map(|name| short(name)).collect();
        format!(
            "no route's `match` takes the ApplicationSet `{}` with the parameters [{}]; name a route in `baseUrl` \
                 (http://<gateway>/<route>), or add a `match`; there are: {}",
            short(&call.application_set),
            parameters.join(", "),
            open.join(", ")
        )
    };
    ApiError::new(Code::UnknownRoute, message)
}

/// `caller` may not ask `route`.
pub(super) fn out_of_scope(caller: &Caller, route: &str) -> ApiError {
    let name = &caller.name;
    let message = match caller.role {
        Role::Caller => format!("the caller `{name}` may not ask the route `{}`; see its `routes`", short(route)),
        role => {
            let role = role.as_str();
            format!(
                "the caller `{name}` has the role `{role}` and may not call routes; Argo CD needs a token of its own"
            )
        }
    };
    ApiError::new(Code::Forbidden, message)
}

/// `caller` may not ask for `application_set`.
pub(super) fn not_for(caller: &Caller, application_set: &str) -> ApiError {
    if caller.role != Role::Caller {
        return out_of_scope(caller, "");
    }
    let name = &caller.name;
    let message = if application_set.is_empty() {
        format!(
            "the call names no ApplicationSet (`applicationSetName`), and the `applicationSets` of the caller `{name}` need one"
        )
    } else {
        let resolved = short(application_set);
        format!("the caller `{name}` may not ask for the ApplicationSet `{resolved}`; see its `applicationSets`")
    };
    ApiError::new(Code::Forbidden, message)
}
