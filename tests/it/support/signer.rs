//! Keys and certificates for tests, made by `openssl`, and tokens signed with them.

use std::{path::PathBuf, process::Command};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::issuer::unix_now;

/// A key with a self-signed certificate for `localhost` and 127.0.0.1.
pub(crate) struct Signer {
    folder: TempDir,
}

impl Signer {
    /// A new key.
    pub(crate) fn new() -> Self {
        let signer = Self { folder: tempfile::tempdir().unwrap() };
        let (key, certificate) = (signer.key(), signer.certificate());
        openssl(Command::new("openssl").args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]).args([
            "-subj",
            "/CN=test",
            "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
            // Otherwise clients do not take it for a server's certificate.
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-keyout",
            key.to_str().unwrap(),
            "-out",
            certificate.to_str().unwrap(),
        ]));
        signer
    }

    /// The certificate, as PEM.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.path().join("certificate.pem")
    }

    /// Its key.
    pub(crate) fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    /// A token as the distribution project's registry wants it. It permits pulls of `repository` for `life` seconds.
    pub(crate) fn token(&self, repository: &str, life: u64) -> String {
        let pem = std::fs::read_to_string(self.certificate()).unwrap();
        let der: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        let now = unix_now();
        let access = json!([{"type": "repository", "name": repository, "actions": ["pull"]}]);
        let claims = json!({"iss": "test", "sub": "ci", "aud": "test registry", "nbf": now - 5, "iat": now,
            "exp": now + life, "jti": "x", "access": access});
        let part = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let text = format!("{}.{}", part(&json!({"typ": "JWT", "alg": "RS256", "x5c": [der]})), part(&claims));
        let file = tempfile::NamedTempFile::new_in(self.folder.path()).unwrap();
        std::fs::write(file.path(), &text).unwrap();
        let mut command = Command::new("openssl");
        let signed = openssl(command.args(["dgst", "-sha256", "-sign"]).arg(self.key()).arg(file.path()));
        // A certificate's base64 is used in the header unchanged.
        assert!(STANDARD.decode(&der).is_ok());
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signed))
    }
}

fn openssl(command: &mut Command) -> Vec<u8> {
    let output = command.output().expect("this test needs the program `openssl` (Debian's package of that name)");
    assert!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
