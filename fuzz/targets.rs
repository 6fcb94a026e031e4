//! The fuzz targets: libFuzzer searches for bytes that break the properties of `tests/it/fuzz`. The tests check the same
//! properties with the seeds.

use conformance::evaluate as argo;

#[path = "../tests/it/fuzz/answers.rs"]
mod answers;
#[path = "../tests/it/fuzz/callers.rs"]
mod callers;
#[path = "../tests/it/fuzz/configuration.rs"]
mod configuration;
#[path = "../tests/it/fuzz/links.rs"]
mod links;
#[path = "../tests/it/fuzz/messages.rs"]
mod messages;
#[path = "../tests/it/fuzz/numbers.rs"]
mod numbers;
#[path = "../tests/it/fuzz/registries.rs"]
mod registries;
#[path = "../tests/it/fuzz/request.rs"]
mod request;
#[path = "../tests/it/fuzz/sidecars.rs"]
mod sidecars;
#[path = "../tests/it/fuzz/signatures.rs"]
mod signatures;
#[path = "../tests/it/fuzz/tags.rs"]
mod tags;
#[path = "../tests/it/fuzz/values.rs"]
mod values;

/// Makes properties public, which the tests have for themselves.
macro_rules! properties {
    ($($topic:ident::$name:ident,)+) => {
        $(
            /// The property of this name.
            pub fn $name(data: &[u8]) {
                $topic::$name(data);
            }
        )+
    };
}

properties! {
    sidecars::archive,
    callers::authorization,
    configuration::config,
    registries::docker_config,
    configuration::expression,
    sidecars::grpc_messages,
    callers::jwt,
    links::link,
    values::parameter_value,
    answers::plugin_answer,
    registries::reference,
    registries::registry_answer,
    sidecars::relay_exchange,
    request::request_body,
    request::route_path,
    answers::script_output,
    signatures::signature,
    tags::tags,
    configuration::template,
    registries::www_authenticate,
}
