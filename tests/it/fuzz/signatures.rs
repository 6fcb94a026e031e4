//! Signatures: whatever is found beside an image, only what the owner of a key or identity signed counts.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path as FilePath, PathBuf},
    sync::LazyLock,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{
    file::base_dir::BaseDir,
    problem::{Path, Problems},
};
use serde_json::{Value, json};
use signature::{Candidate, ExpectedImage, Form, Policy, PolicyVerdict};

use super::messages::is_one_line;

/// Signatures whose private keys are lost.
static KEYS: LazyLock<Value> = LazyLock::new(|| made(include_str!("../../signatures/keys.json")));
static KEYLESS: LazyLock<Value> = LazyLock::new(|| made(include_str!("../../signatures/keyless.json")));
/// What counts: the key, or the identity.
static POLICY: LazyLock<Policy> = LazyLock::new(policy);

fn made(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// The policy reads its files again while it is used, so they stay. All processes use the same ones, since they never differ.
fn policy() -> Policy {
    let (key, root) = (KEYS["keys"]["p256"]["pem"].as_str().unwrap(), KEYLESS["trustedRoot"].to_string());
    let mut hasher = DefaultHasher::new();
    (key, &root).hash(&mut hasher);
    let folder: PathBuf = std::env::temp_dir().join(format!("appset-gateway-signatures-{:016x}", hasher.finish()));
    std::fs::create_dir_all(&folder).unwrap();
    put(&folder.join("key.pub"), key);
    put(&folder.join("root.json"), &root);
    let keyless = json!({"issuer": "https://token.actions.githubusercontent.com", "identity": "https://github.com/org/*",
        "trustedRoot": "root.json", "transparencyLog": false});
    let config = json!({"any": [{"key": {"file": "key.pub"}}, {"keyless": keyless}], "formats": ["bundle", "legacy"]});
    let (config, mut problems) = (serde_json::from_value(config).unwrap(), Problems::default());
    Policy::build(&config, None, &BaseDir::new(&folder), &Path::root(), &mut problems).unwrap()
}

/// Writes `file` at once, so that no other process reads half of it.
fn put(file: &FilePath, text: &str) {
    let own = file.with_extension(std::process::id().to_string());
    std::fs::write(&own, text).unwrap();
    std::fs::rename(own, file).unwrap();
}

/// Bytes, by their first one: `b` a bundle, `d` the payload of a signed envelope, `c` the certificate of a signed bundle, `t` its time stamp,
/// `s` the payload of a signed legacy signature. Nothing counts but what was signed.
pub(super) fn signature(data: &[u8]) {
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
    // Without keys, nothing would count, and nothing would be tested.
    assert!(POLICY.current().is_complete);
    for made in [&*KEYS, &*KEYLESS] {
        let digest = made["digest"].as_str().unwrap().to_owned();
        let candidates = [Candidate { place: "place".to_owned(), form: form.clone() }];
        let judge =
            || POLICY.check(&ExpectedImage { digests: std::slice::from_ref(&digest), commit: None }, &candidates);
        let verdict = judge();
        assert_eq!(verdict, judge(), "another verdict on the same");
        match &verdict {
            PolicyVerdict::Present(_) => assert!(is_signed(&form), "a forgery counts: {candidates:?}"),
            PolicyVerdict::Absent(why) | PolicyVerdict::Unknown(why) | PolicyVerdict::Bad(why) => is_one_line(why),
            PolicyVerdict::OtherCommit { .. } => panic!("no commit was asked about"),
        }
    }
}

/// Whether `form` has a payload that was signed; and unless it is by key, whether its certificate and time stamps were signed too.
fn is_signed(form: &Form) -> bool {
    let payload = |bundle: &Value| decoded(bundle.pointer("/dsseEnvelope/payload"));
    match form {
        Form::Bundle(bytes) => {
            let Ok(given) = serde_json::from_slice::<Value>(bytes) else { return false };
            let by_key = KEYS["keys"]["p256"].as_object().unwrap().values();
            let by_run = || KEYLESS["bundles"].as_object().unwrap().values();
            let is_by_key = given.pointer("/verificationMaterial/publicKey").is_some();
            let is_made = |part: fn(&Value) -> Vec<Vec<u8>>| {
                is_by_key || part(&given).iter().all(|given| by_run().any(|bundle| part(bundle).contains(given)))
            };
            payload(&given).is_some()
                && by_key.chain(by_run()).any(|bundle| payload(bundle) == payload(&given))
                && is_made(certified)
                && is_made(stamped)
        }
        Form::SimpleSigning { payload, .. } => {
            KEYS["keys"]["p256"]["legacy"]["payload"].as_str().unwrap().as_bytes() == &payload[..]
        }
        Form::Unsupported(_) => false,
    }
}

fn decoded(text: Option<&Value>) -> Option<Vec<u8>> {
    STANDARD.decode(text?.as_str()?).ok()
}

/// What an authority signed of the certificate of `bundle`, if it has one.
fn certified(bundle: &Value) -> Vec<Vec<u8>> {
    let certificate = decoded(bundle.pointer("/verificationMaterial/certificate/rawBytes"));
    certificate.map(|certificate| content(content(&certificate)).to_vec()).into_iter().collect()
}

/// What authorities signed of the time stamps of `bundle`.
fn stamped(bundle: &Value) -> Vec<Vec<u8>> {
    // The object identifier of `TSTInfo` (RFC 3161, section 2.4.2), in DER. The statement follows, in two wrappers.
    const STATEMENT: &[u8] = b"\x06\x0b\x2a\x86\x48\x86\xf7\x0d\x01\x09\x10\x01\x04";
    let list = bundle.pointer("/verificationMaterial/timestampVerificationData/rfc3161Timestamps");
    let stamps = list.and_then(Value::as_array).into_iter().flatten();
    let signed = stamps.map(|stamp| {
        let stamp = decoded(stamp.get("signedTimestamp")).unwrap_or_default();
        let at = stamp.windows(STATEMENT.len()).position(|part| part == STATEMENT);
        at.map(|at| content(content(&stamp[at + STATEMENT.len()..])).to_vec()).unwrap_or_default()
    });
    signed.collect()
}

/// The content of the first value of `der`; nothing if it is cut off.
fn content(der: &[u8]) -> &[u8] {
    let Some((&[_, length], rest)) = der.split_first_chunk() else { return &[] };
    let digits = if length < 0x80 { 0 } else { usize::from(length - 0x80) };
    let Some((length_digits, rest)) = rest.split_at_checked(digits).filter(|_| digits <= 4) else { return &[] };
    let length = match digits {
        0 => usize::from(length),
        _ => length_digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)),
    };
    rest.get(..length).unwrap_or_default()
}
