//! The fuzz targets: libFuzzer searches for bytes that break the properties of `tests/it/fuzz`. The tests check the same
//! properties with the seeds.

use appset_gateway::conformance::evaluate as argo;

#[path = "../tests/it/fuzz/answers.rs"]
pub mod answers;
#[path = "../tests/it/fuzz/callers.rs"]
pub mod callers;
#[path = "../tests/it/fuzz/configuration.rs"]
pub mod configuration;
#[path = "../tests/it/fuzz/links.rs"]
pub mod links;
#[path = "../tests/it/fuzz/messages.rs"]
mod messages;
#[path = "../tests/it/fuzz/numbers.rs"]
mod numbers;
#[path = "../tests/it/fuzz/registries.rs"]
pub mod registries;
#[path = "../tests/it/fuzz/request.rs"]
pub mod request;
#[path = "../tests/it/fuzz/signatures.rs"]
pub mod signatures;
#[path = "../tests/it/fuzz/tags.rs"]
pub mod tags;
#[path = "../tests/it/fuzz/values.rs"]
pub mod values;
