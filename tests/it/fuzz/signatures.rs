//! Signatures: whatever is found beside an image, only what the owner of a key or identity signed counts.

use std::{path::PathBuf, sync::LazyLock};

use appset_gateway::{
    domain::problem::{Path, Problems},
    file::base_dir::BaseDir,
    signature::{Asked, Candidate, Form, Policy, Verdict},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::messages::is_one_line;

/// Signatures whose private keys are lost.
static KEYS: LazyLock<Value> = LazyLock::new(|| made(include_str!("../../signatures/keys.json")));
static KEYLESS: LazyLock<Value> = LazyLock::new(|| made(include_str!("../../signatures/keyless.json")));
/// What counts: the key, or the identity.
static POLICY: LazyLock<Policy> = LazyLock::new(policy);

fn made(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn policy() -> Policy {
    let folder: PathBuf = std::env::temp_dir().join(format!("appset-gateway-signatures-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("key.pub"), KEYS["keys"]["p256"]["pem"].as_str().unwrap()).unwrap();
    std::fs::write(folder.join("root.json"), KEYLESS["trustedRoot"].to_string()).unwrap();
    let keyless = json!({"issuer": "https://token.actions.githubusercontent.com", "identity": "https://github.com/org/*",
        "trustedRoot": "root.json", "transparencyLog": false});
    let config = json!({"any": [{"key": {"file": "key.pub"}}, {"keyless": keyless}], "formats": ["bundle", "legacy"]});
    let (config, mut problems) = (serde_json::from_value(config).unwrap(), Problems::default());
    let policy = Policy::build(&config, None, &BaseDir::new(&folder), &Path::root(), &mut problems).unwrap();
    let _ = std::fs::remove_dir_all(&folder);
    policy
}

/// Bytes, by their first one: `b` a bundle, `d` the payload of a signed envelope, `c` the certificate of a signed bundle, `t` its time stamp,
/// `s` the payload of a signed legacy signature. Nothing counts but what was signed.
pub fn signature(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let (key, run) = (&KEYS["keys"]["p256"], &KEYLESS["bundles"]["good"]);
    let put = |bundle: &Value, pointer: &str| {
        let mut bundle = bundle.clone();
        *bundle.pointer_mut(pointer).unwrap() = json!(STANDARD.encode(data));
        Form::Bundle(bundle.to_string().into())
    };
    let form = match kind {
        b'b' => Form::Bundle(data.to_vec().into()),
        b'd' => put(&key["sign"], "/dsseEnvelope/payload"),
        b'c' => put(run, "/verificationMaterial/certificate/rawBytes"),
        b't' => put(run, "/verificationMaterial/timestampVerificationData/rfc3161Timestamps/0/signedTimestamp"),
        b's' => {
            let text = |name: &str| key["legacy"][name].as_str().unwrap().to_owned();
            Form::SimpleSigning {
                payload: data.to_vec().into(),
                layer_digest: text("layerDigest"),
                signature: Some(text("signature")),
            }
        }
        _ => return,
    };
    for made in [&*KEYS, &*KEYLESS] {
        let digest = made["digest"].as_str().unwrap().to_owned();
        let candidates = [Candidate { place: "place".to_owned(), form: form.clone() }];
        let judge = || POLICY.judge(&Asked { digests: std::slice::from_ref(&digest), commit: None }, &candidates);
        let verdict = judge();
        assert_eq!(verdict, judge(), "another verdict on the same");
        match &verdict {
            Verdict::Present(_) => assert!(is_signed(&form), "a forgery counts: {candidates:?}"),
            Verdict::Absent(why) | Verdict::Unknown(why) | Verdict::Bad(why) => is_one_line(why),
            Verdict::OtherCommit { .. } => panic!("no commit was asked about"),
        }
    }
}

/// Whether the payload of `form` is one that was signed.
fn is_signed(form: &Form) -> bool {
    let payload = |bundle: &Value| STANDARD.decode(bundle.pointer("/dsseEnvelope/payload")?.as_str()?).ok();
    match form {
        Form::Bundle(bytes) => {
            let given = serde_json::from_slice::<Value>(bytes).ok().and_then(|bundle| payload(&bundle));
            let by_key = KEYS["keys"]["p256"].as_object().unwrap().values();
            let by_run = KEYLESS["bundles"].as_object().unwrap().values();
            given.is_some() && by_key.chain(by_run).any(|bundle| payload(bundle) == given)
        }
        Form::SimpleSigning { payload, .. } => {
            KEYS["keys"]["p256"]["legacy"]["payload"].as_str().unwrap().as_bytes() == &payload[..]
        }
        Form::Unsupported(_) => false,
    }
}
