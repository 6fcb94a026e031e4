//! Signatures by the real cosign and real public ones, and forgeries of them: each is refused for its own reason.

#[cfg(feature = "keyless")]
mod clock;
mod configuration;
mod counted_once;
mod forged;
#[cfg(feature = "keyless")]
mod keyless;
mod keys;
mod mixed;
#[cfg(feature = "keyless")]
mod public;
#[cfg(feature = "keyless")]
mod roots;

use std::path::PathBuf;

use serde_json::Value;

use super::*;
use domain::{
    file::base_dir::BaseDir,
    problem::{Path, Problems},
};

/// The digest of 64 times `digit`.
fn digest(digit: char) -> String {
    digit.to_string().repeat(64)
}

/// A document of `tests/signatures`.
fn fixture(name: &str) -> Value {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/signatures").join(name);
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    serde_json::from_str(&text).unwrap()
}

/// A folder with the files of a configuration.
struct Folder(tempfile::TempDir);

impl Folder {
    fn with(files: &[(&str, &str)]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for (name, text) in files {
            folder.put(name, text);
        }
        folder
    }

    fn put(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }

    /// The policy of the configuration `config`, an object with `signature` and perhaps `provenance`; and the problems with it.
    fn try_policy(&self, config: &Value) -> (Option<Policy>, Vec<String>) {
        try_policy_at(config, &BaseDir::new(self.0.path()))
    }

    fn policy(&self, config: &Value) -> Policy {
        let (policy, problems) = self.try_policy(config);
        policy.unwrap_or_else(|| panic!("{problems:?}"))
    }
}

fn try_policy_at(config: &Value, base: &BaseDir) -> (Option<Policy>, Vec<String>) {
    let signature: SignatureConfig = serde_json::from_value(config["signature"].clone()).unwrap();
    let provenance = config.get("provenance");
    let provenance: Option<ProvenanceConfig> =
        provenance.map(|provenance| serde_json::from_value(provenance.clone()).unwrap());
    let mut problems = Problems::default();
    let policy = Policy::build(&signature, provenance.as_ref(), base, &Path::root(), &mut problems);
    let problems = problems.into_vec().into_iter().map(|problem| format!("{}: {}", problem.path, problem.message));
    (policy, problems.collect())
}

/// `value` as a bundle, with `change`.
fn with(value: &Value, change: impl Fn(&mut Value)) -> Form {
    let mut value = value.clone();
    change(&mut value);
    bundle(&value)
}

fn bundle(bundle: &Value) -> Form {
    Form::Bundle(bundle.to_string().into())
}

fn evaluate(policy: &Policy, digest: &str, forms: Vec<Form>) -> PolicyVerdict {
    evaluate_for_commit(policy, digest, None, forms)
}

fn evaluate_for_commit(policy: &Policy, digest: &str, commit: Option<&str>, forms: Vec<Form>) -> PolicyVerdict {
    let places = forms.into_iter().enumerate();
    let candidates: Vec<_> = places.map(|(index, form)| Candidate { place: format!("place {index}"), form }).collect();
    policy.check(&ExpectedImage { digests: &[digest.to_owned()], commit }, &candidates)
}

/// The name and the text of a verdict.
fn shown(verdict: &PolicyVerdict) -> (&'static str, String) {
    match verdict {
        PolicyVerdict::Present(proof) => ("present", proof.signer.clone()),
        PolicyVerdict::Absent(why) => ("absent", why.clone()),
        PolicyVerdict::OtherCommit { why, .. } => ("other commit", why.clone()),
        PolicyVerdict::Unknown(why) => ("unknown", why.clone()),
        PolicyVerdict::Bad(why) => ("bad", why.clone()),
    }
}

/// Forgeries: their names, the documents, the expected verdict, and a part of its text.
type Cases = Vec<(&'static str, Form, &'static str, &'static str)>;

/// Checks each case by itself.
fn check(policy: &Policy, digest: &str, cases: Cases) {
    let mut wrong = Vec::new();
    for (name, form, verdict, says) in cases {
        let documents = evaluate(policy, digest, vec![form]);
        let (found, text) = shown(&documents);
        if found != verdict || !text.to_lowercase().contains(&says.to_lowercase()) {
            wrong.push(format!("{name}: {found}: {text}\n  not {verdict}: {says}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
