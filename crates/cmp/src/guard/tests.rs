use std::time::Duration;

use super::*;
use crate::{
    archive::index::{Entries, Entry},
    grpc::message::EnvEntry,
    plugin::Plugin,
};

const THREE: &str = "kind: Namespace\nmetadata: {name: shop}\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: \
                     shop}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n";

fn inputs(application: u8, digest: u8) -> Inputs {
    Inputs { application: [application; 32], digest: [digest; 32] }
}

fn check(guard: &Guard, inputs: Inputs, text: &str, after: u64) -> Result<(), String> {
    // One start for all checks of a test: a time in the future is as good as one of now.
    let began = *BEGAN.get_or_init(Instant::now);
    let manifests = [text.to_owned()];
    guard.check(&inputs, &manifests, began + Duration::from_secs(after)).map_err(|error| error.to_string())
}

static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();

#[test]
fn a_loss_is_held_until_it_returns_or_the_inputs_change() {
    let guard = Guard::new(GuardConfig::default(), false);
    check(&guard, inputs(1, 1), THREE, 0).unwrap();
    let half = THREE.split("---").next().unwrap();
    for after in [1, 1_000_000] {
        let error = check(&guard, inputs(1, 1), half, after).unwrap_err();
        for text in
            ["3 resources the last time and 1 now", "missing: Deployment.apps in shop: web, Service in shop: web."]
        {
            assert!(error.contains(text), "{error}: {text}");
        }
    }
    // Nothing, on purpose.
    assert!(guard.check(&inputs(1, 1), &[], Instant::now()).is_err());
    check(&guard, inputs(1, 1), THREE, 2).unwrap();
    // Another Application, and other inputs of the same one.
    check(&guard, inputs(2, 1), half, 3).unwrap();
    check(&guard, inputs(1, 2), half, 4).unwrap();
    check(&guard, inputs(1, 2), half, 5).unwrap();
    // The first inputs again: the last manifests count.
    check(&guard, inputs(1, 1), half, 6).unwrap();
}

#[test]
fn only_fewer_of_a_kind_and_namespace_are_a_loss() {
    let guard = Guard::new(GuardConfig::default(), false);
    let of = |text: &str| check(&guard, inputs(1, 1), text, 0);
    let job = |name: &str| format!("kind: Job\nmetadata: {{name: run-{name}}}\n---\nkind: A\nmetadata: {{name: x}}\n");
    of(&job("1")).unwrap();
    of(&job("2")).unwrap();
    of("kind: List\nitems:\n- {kind: Job, metadata: {name: run-3}}\n- {kind: A, metadata: {name: x}}\n- {kind: B}\n")
        .unwrap();
    // A list's items count, and three of one kind are not three of three.
    let error =
        of("kind: Job\nmetadata: {name: a}\n---\nkind: Job\nmetadata: {name: b}\n---\nkind: Job\n").unwrap_err();
    assert!(error.contains("missing: A: x, B: *."), "{error}");
    // A config map may have any items, and versions of an API are one resource.
    let other = |text: &str| check(&guard, inputs(2, 1), text, 0);
    other("apiVersion: apps/v1beta1\nkind: Deployment\nitems: [1, 2]\nmetadata: {name: 7}\n").unwrap();
    other("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: '7'}\n").unwrap();
}

#[test]
fn what_cannot_be_read_is_held_only_after_what_could() {
    let guard = Guard::new(GuardConfig::default(), false);
    check(&guard, inputs(1, 1), "a: [", 0).unwrap();
    check(&guard, inputs(1, 1), THREE, 0).unwrap();
    let error = check(&guard, inputs(1, 1), &THREE[..THREE.len() - 3], 0).unwrap_err();
    assert!(error.contains("cannot be compared") && error.contains("3 resources"), "{error}");
    check(&guard, inputs(1, 2), "a: [", 0).unwrap();
    // As Argo CD: numbers, repeated keys and merge keys of any dialect.
    let lenient = "kind: A\nkind: B\nx: &x {a: 0644}\ny: {<<: *x, b: 1.10, c: !!binary aGk=}\nmetadata: {name: z}\n---\n# none\n---\nnull\n";
    check(&guard, inputs(1, 3), lenient, 0).unwrap();
    let error = check(&guard, inputs(1, 3), "", 0).unwrap_err();
    assert!(error.contains("1 resources the last time and 0 now; missing: B: z."), "{error}");
}

#[test]
fn runs_that_agree_confirm_a_loss() {
    let config = "onShrink: confirm\nconfirmAfter: 2\nconfirmFor: 60s\n";
    let guard = Guard::new(serde_saphyr::from_str(config).unwrap(), false);
    let of = |text: &str, after| check(&guard, inputs(1, 1), text, after);
    let (one, two) = ("kind: A\n", "kind: A\n---\nkind: B\n");
    of(two, 0).unwrap();
    let error = of(one, 0).unwrap_err();
    assert!(error.contains("or wait until 2 further runs agree, 1m apart"), "{error}");
    for after in [30, 59, 60, 61, 119] {
        assert!(of(one, after).is_err(), "{after}");
    }
    // Another result starts anew.
    assert!(of("kind: B\n", 120).is_err());
    assert!(of(one, 121).is_err() && of(one, 181).is_err() && of(one, 240).is_err());
    of(one, 241).unwrap();
    of(one, 242).unwrap();
    // The resources return in time: nothing is left of the hold.
    of(two, 250).unwrap();
    assert!(of(one, 310).is_err() && of(one, 370).is_err());
    of(two, 371).unwrap();
    assert!(of(one, 430).is_err() && of(one, 490).is_err());
    of(one, 550).unwrap();
    let allowed = Guard::new(serde_saphyr::from_str("onShrink: allow\n").unwrap(), false);
    check(&allowed, inputs(1, 1), two, 0).unwrap();
    check(&allowed, inputs(1, 1), "[]", 0).unwrap();
}

#[test]
fn a_list_of_nothing_is_not_nothing_on_purpose() {
    for config in ["onShrink: keep\n", "onShrink: confirm\n", "onShrink: allow\n"] {
        let guard = |allow_blank| Guard::new(serde_saphyr::from_str(config).unwrap(), allow_blank);
        for text in ["kind: List\nitems: []\n", "kind: ResourceList\nitems: null\n", "kind: A\nitems: []\n---\nnull\n"]
        {
            let error = check(&guard(false), inputs(1, 1), text, 0).unwrap_err();
            assert!(error.contains("without a resource"), "{text}: {error}");
            check(&guard(true), inputs(1, 1), text, 0).unwrap();
        }
        // These are resources.
        for text in ["kind: A\nitems: null\nspec: {}\n", "kind: List\nitems: [{kind: B}]\n"] {
            check(&guard(false), inputs(1, 1), text, 0).unwrap();
        }
        guard(false).check(&inputs(1, 1), &[], Instant::now()).unwrap();
    }
}

#[test]
fn messages_and_memory_are_bounded() {
    let guard = Guard::new(GuardConfig::default(), false);
    let many: Vec<String> = (0..1000).map(|at| format!("kind: A\nmetadata: {{name: \"x{at:04}\\n\"}}\n")).collect();
    let many = many.join("---\n");
    check(&guard, inputs(0, 0), &many, 0).unwrap();
    let error = check(&guard, inputs(0, 0), "", 0).unwrap_err();
    assert!(error.contains("and 990 more.") && error.len() < 1000 && !error.contains('\n'), "{error}");
    let record = guard.known.get(&inputs(0, 0).application).unwrap();
    for at in 0_u32..500 {
        guard.known.insert(Sha256::digest(at.to_le_bytes()).into(), record.clone());
    }
    let kept: usize = guard.known.snapshot().iter().map(|(_, record)| RECORD + record.resources.bytes()).sum();
    assert!(kept <= MAX_BYTES && kept > MAX_BYTES / 2, "{kept}");
}

#[test]
fn inputs_are_files_variables_and_commands() {
    let plugin = |command: &str| {
        let text = format!(
            "kind: ConfigManagementPlugin\nmetadata: {{name: x}}\nspec: {{generate: {{command: [{command}]}}}}\n"
        );
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("plugin.yaml"), text).unwrap();
        Plugin::read(folder.path()).unwrap()
    };
    let entries = |files: &[&str]| {
        let file = |path: &&str| (path.as_bytes().to_vec(), Entry::File { is_executable: false, content: [0; 32] });
        files.iter().map(file).collect::<Entries>()
    };
    let of = |command: &str, files: &[&str], folder: &str, variables: &[(&str, &str)]| {
        let env: Vec<_> = variables
            .iter()
            .map(|(name, value)| EnvEntry { name: (*name).to_owned(), value: (*value).to_owned() })
            .collect();
        Inputs::new(&plugin(command), &entries(files), folder, &env)
    };
    let name = ("ARGOCD_APP_NAME", "shop");
    let usual = of("a", &["x"], ".", &[name]);
    for equal in [
        of("a", &["x", ".git/index", ".git"], ".", &[name]),
        of("a", &["x"], ".", &[("ARGOCD_APP_NAME", "old"), name]),
        of("a", &["x"], ".", &[("ARGOCD_APP_REVISION", "1"), name, ("ARGOCD_APP_REVISION_SHORT_8", "1")]),
        of("a", &["x"], ".", &[name, ("ARGOCD_GIT_ASKPASS_NONCE", "1"), ("GIT_ASKPASS", "x")]),
    ] {
        assert_eq!(equal, usual);
    }
    for (at, other) in [
        of("b", &["x"], ".", &[name]),
        of("'a', 'b'", &["x"], ".", &[name]),
        of("a", &["y"], ".", &[name]),
        of("a", &["x", "sub/.git"], ".", &[name]),
        of("a", &["x"], "sub", &[name]),
        of("a", &["x"], ".", &[name, ("ARGOCD_ENV_ACCEPT", "1")]),
        of("a", &["x"], ".", &[name, ("PARAM_X", "1")]),
        of("a", &["x"], ".", &[name, ("KUBE_VERSION", "1")]),
        of("a", &["x"], ".", &[name, ("ARGOCD_APP_PARAMETERS", "[]")]),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(other.application, usual.application, "{at}");
        assert_ne!(other.digest, usual.digest, "{at}");
    }
    assert_ne!(of("a", &["x"], ".", &[("ARGOCD_APP_NAME", "other")]).application, usual.application);
}
