//! Properties that hold for any bytes from outside, checked with the seeds in `fuzz/corpus`. `make fuzz` searches for more.

mod answers;
mod callers;
mod configuration;
mod links;
mod messages;
mod numbers;
mod registries;
mod request;
mod sidecars;
mod signatures;
mod tags;
mod values;

use std::{
    collections::BTreeSet,
    fs,
    panic::catch_unwind,
    path::{Path, PathBuf},
    thread::Builder,
};

use crate::support::argo;

/// Checks a property for some bytes.
type Target = fn(&[u8]);

/// All targets by name.
const TARGETS: [(&str, Target); 20] = [
    ("archive", sidecars::archive),
    ("authorization", callers::authorization),
    ("config", configuration::config),
    ("docker_config", registries::docker_config),
    ("expression", configuration::expression),
    ("grpc_messages", sidecars::grpc_messages),
    ("jwt", callers::jwt),
    ("link", links::link),
    ("parameter_value", values::parameter_value),
    ("plugin_answer", answers::plugin_answer),
    ("reference", registries::reference),
    ("registry_answer", registries::registry_answer),
    ("relay_exchange", sidecars::relay_exchange),
    ("request_body", request::request_body),
    ("route_path", request::route_path),
    ("script_output", answers::script_output),
    ("signature", signatures::signature),
    ("tags", tags::tags),
    ("template", configuration::template),
    ("www_authenticate", registries::www_authenticate),
];

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz").join(path)
}

fn entries(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// The stack of libFuzzer's thread. Without optimisation, reading YAML needs more than a test's thread has.
const STACK: usize = 8 * 1024 * 1024;

#[test]
fn every_property_holds_for_each_seed() {
    let thread = Builder::new().stack_size(STACK).spawn(replay).unwrap();
    let failed = thread.join().unwrap();
    assert!(failed.is_empty(), "see above for why: {failed:#?}");
}

/// The seeds for which a property fails.
fn replay() -> Vec<PathBuf> {
    let mut failed = Vec::new();
    for (name, target) in TARGETS {
        let seeds = entries(&folder("corpus").join(name));
        assert!(!seeds.is_empty(), "{name} has no seeds");
        for seed in seeds {
            let data = fs::read(&seed).unwrap();
            if catch_unwind(|| target(&data)).is_err() {
                failed.push(seed);
            }
        }
    }
    failed
}

/// Each target that is replayed here can be fuzzed, and each fuzzed target is replayed here.
#[test]
fn the_replayed_targets_are_the_fuzzed_targets() {
    let names: BTreeSet<String> = TARGETS.map(|(name, _)| name.to_owned()).into();
    let stem = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    for place in ["corpus", "fuzz_targets"] {
        assert_eq!(entries(&folder(place)).iter().map(stem).collect::<BTreeSet<_>>(), names, "{place}");
    }
    let manifest = fs::read_to_string(folder("Cargo.toml")).unwrap();
    for (name, _) in TARGETS {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name}");
        let source = fs::read_to_string(folder("fuzz_targets").join(name).with_extension("rs")).unwrap();
        assert!(source.contains(&format!("::{name}(data)")), "{name}");
    }
}
