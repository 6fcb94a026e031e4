//! The listener for other machines: TLS, tokens, client certificates, and several plugins.

use std::{fs, path::Path, process::Stdio};

use crate::{
    remotes::certify,
    support::{Answer, DEMO, Gateway, answers, client, script},
};

/// A server of two plugins that listens for other machines, and its address.
fn serve(certificates: &Path, callers: &str) -> (Gateway, String) {
    let folder = certificates.display();
    let config = format!(
        "listen: {{ address: 127.0.0.1:0, tls: {{ cert: {folder}/tls.crt, key: {folder}/tls.key{callers} }}\nplugins:\n- config: first\n- config: \
         second\n"
    );
    let second = script("echo 'a: second'").replace("demo", "second").replace("v1.0", "''");
    let mut gateway = Gateway::serve(&config, &[("first", DEMO), ("second", &second)]);
    let address = gateway.address("serving by TLS");
    gateway.file("demo.yaml", "a: b\n");
    (gateway, address)
}

/// The answer of a call from another machine.
fn ask(gateway: &Gateway, address: &str, certificates: &Path, flags: &[&str]) -> Answer {
    let mut command = std::process::Command::new(client());
    command.args([address, "GenerateManifest", "-app", ".", "-ca"]).arg(certificates.join("ca.pem"));
    command.arg("-folder").arg(gateway.path("repository")).args(flags).stdout(Stdio::piped());
    answers(command.spawn().unwrap()).remove(0)
}

#[test]
fn a_caller_needs_a_token_and_names_the_plugin() {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path());
    fs::write(folder.path().join("token"), "a-token-that-is-long-enough\n").unwrap();
    let callers = format!(" }}, tokens: [ {{ file: {}/token }} ]", folder.path().display());
    let (gateway, address) = serve(folder.path(), &callers);
    let ask = |flags: &[&str]| ask(&gateway, &address, folder.path(), flags);
    for flags in [&["-plugin", "second"][..], &["-plugin", "second", "-token", "another"]] {
        let refused = ask(flags);
        assert_eq!(refused.code(), "Unauthenticated", "{refused:?}");
        assert!(!refused.error().contains("long-enough"));
    }
    let token = ["-token", "a-token-that-is-long-enough"];
    let unnamed = ask(&token);
    assert_eq!(unnamed.code(), "NotFound", "{unnamed:?}");
    assert!(unnamed.error().contains("demo-v1.0, second"), "{unnamed:?}");
    assert_eq!(ask(&[&token[..], &["-plugin", "second"]].concat()).manifests(), ["a: second\n"]);
    let first = ask(&[&token[..], &["-plugin", "demo-v1.0", "-env", "ARGOCD_APP_NAME=shop"]].concat());
    assert!(first.manifests()[0].contains("name: shop"), "{first:?}");
}

#[test]
fn a_client_certificate_is_enough() {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path());
    let (gateway, address) = serve(folder.path(), &format!(", clientCa: {}/ca.pem }}", folder.path().display()));
    let ask = |flags: &[&str]| ask(&gateway, &address, folder.path(), flags);
    assert_eq!(ask(&["-plugin", "second"]).code(), "Unauthenticated");
    let pair = folder.path().join("caller.pem").display().to_string();
    assert_eq!(ask(&["-plugin", "second", "-pair", &pair]).manifests(), ["a: second\n"]);
}
