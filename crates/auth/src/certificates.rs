//! Callers by client certificate. `server.tls.clientCa` verifies the certificates.

use std::{collections::HashMap, sync::Arc};

use x509_cert::name::Name;

use super::{Allowance, Caller, Role, check_name, grants::entry_config};
use domain::problem::{Path, Problems};

entry_config! {
    /// One caller by its certificate: its name, and exactly one of `subject` and `uri`. If a call has a token too, only the token counts.
    pub struct CertificateConfig {
        /// The caller's name in logs.
        pub name: String,
        /// The certificate's whole subject, as `openssl x509 -noout -subject -nameopt RFC2253` prints it: `CN=argocd,O=platform`;
        /// the prefix `subject=` may stay.
        pub subject: Option<String>,
        /// A URI among the certificate's alternative names, such as a SPIFFE ID.
        pub uri: Option<String>,
    }
}

/// Help for a subject that no certificate can have.
const SUBJECT_HELP: &str = "as `openssl x509 -noout -subject -nameopt RFC2253 -in tls.crt` prints it, the nearest part first: CN=argocd,O=platform; \
                            an attribute without a short name is written as its OID";

/// All callers with certificates.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    by_subject: HashMap<String, Arc<Caller>>,
    by_uri: HashMap<String, Arc<Caller>>,
}

impl Certificates {
    /// Builds all callers. Problems are noted below `path`, the path of the list.
    pub(crate) fn build(configs: &[CertificateConfig], path: &Path, problems: &mut Problems) -> Self {
        let mut built = Self::default();
        for (index, config) in configs.iter().enumerate() {
            let path = path.index(index);
            check_name(&config.name, &path.key("name"), problems);
            let caller = config.grants(Role::Caller).caller(&config.name, &path, problems);
            let (at, identity, callers) = match (&config.subject, &config.uri) {
                (Some(subject), None) => (path.key("subject"), canonical(subject), &mut built.by_subject),
                (None, Some(uri)) => (path.key("uri"), Some(uri.clone()), &mut built.by_uri),
                _ => {
                    problems.error(&path, "an entry needs exactly one of `subject` and `uri`");
                    continue;
                }
            };
            if let (Some(subject), None) = (&config.subject, &identity) {
                let message = format!("`{subject}` is not a certificate's subject, or has an unknown attribute");
                problems.error_with_help(&at, message, SUBJECT_HELP);
            } else if config.uri.as_ref().is_some_and(|uri| !uri.contains(':')) {
                let message =
                    format!("`{}` is not a URI such as spiffe://example.com/ns/argocd", identity.unwrap_or_default());
                problems.error(&at, message);
                continue;
            }
            if let (Some(identity), Some(caller)) = (identity, caller)
                && callers.insert(identity, Arc::new(caller)).is_some()
            {
                problems.error(&at, "two callers have this certificate");
            }
        }
        built
    }

    /// The allowances, by the callers' names.
    pub(crate) fn allowances(&self) -> impl Iterator<Item = (&str, &Arc<Allowance>)> {
        self.by_subject.values().chain(self.by_uri.values()).map(|caller| caller.allowance())
    }

    /// The same, for replacing them.
    pub(crate) fn allowances_mut(&mut self) -> impl Iterator<Item = (&str, &mut Arc<Allowance>)> {
        let callers = self.by_subject.values_mut().chain(self.by_uri.values_mut());
        callers.map(|caller| Arc::make_mut(caller).allowance_mut())
    }

    /// The caller with this subject, or else the caller of the first of `uris` that has one.
    pub(crate) fn find(&self, subject: &str, uris: &[String]) -> Option<Arc<Caller>> {
        let by_subject = self.by_subject.get(subject);
        by_subject.or_else(|| uris.iter().find_map(|uri| self.by_uri.get(uri))).cloned()
    }
}

/// The subject `text` in the canonical form of RFC 4514: capital attribute names, escapes only where needed, and without the prefix that
/// `openssl` prints. `None` if it is not a subject.
fn canonical(text: &str) -> Option<String> {
    let text = text.trim();
    let text = text.strip_prefix("subject=").unwrap_or(text).trim_start();
    let name = text.parse::<Name>().ok()?;
    (!name.is_empty()).then(|| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(config: &str) -> (Certificates, Vec<String>) {
        let mut problems = Problems::default();
        let configs: Vec<CertificateConfig> = serde_json::from_str(config).unwrap();
        let built = Certificates::build(&configs, &Path::root(), &mut problems);
        (
            built,
            problems.into_vec().into_iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect(),
        )
    }

    #[test]
    fn a_certificate_identifies_its_caller() {
        let (certificates, messages) =
            build(r#"[{"name":"a","subject":"CN=a,O=x","routes":["a-*"]},{"name":"b","uri":"spiffe://x/ns/b"}]"#);
        assert_eq!(messages, Vec::<String>::new());
        let name = |subject: &str, uris: &[&str]| {
            let uris: Vec<String> = uris.iter().map(|&uri| uri.to_owned()).collect();
            certificates.find(subject, &uris).map(|caller| caller.name.clone())
        };
        assert_eq!(name("CN=a,O=x", &["spiffe://x/ns/b"]).as_deref(), Some("a"));
        assert_eq!(name("", &["https://x", "spiffe://x/ns/b"]).as_deref(), Some("b"));
        for subject in ["", "CN=a", "CN=a,O=X", "CN=a,O=x,C=y", "spiffe://x/ns/b"] {
            assert_eq!(name(subject, &["spiffe://x/ns/bb", "CN=a,O=x"]), None, "{subject}");
        }
        assert!(!certificates.find("CN=a,O=x", &[]).unwrap().may_ask("b"));
    }

    #[test]
    fn a_subject_may_be_written_as_openssl_prints_it() {
        for (written, expected) in [
            ("CN=argocd,O=platform", "CN=argocd,O=platform"),
            ("subject=CN=argocd,O=platform\n", "CN=argocd,O=platform"),
            ("subject= cn=argocd,o=platform", "CN=argocd,O=platform"),
            (r"CN=argocd,O=Platform\, Inc.", r"CN=argocd,O=Platform\, Inc."),
            (r"CN=M\C3\BCller,O=platform", "CN=Müller,O=platform"),
            ("OU=a+CN=b,DC=example,DC=com", "CN=b+OU=a,DC=example,DC=com"),
        ] {
            assert_eq!(canonical(written).as_deref(), Some(expected), "{written}");
        }
        let bad = [
            "",
            "argocd",
            "subject=",
            "/O=platform/CN=argocd",
            "subject=/O=platform/CN=argocd",
            "CN = a, O = x",
            "CN=a, O=x",
            "CN=a,b",
            "Common Name=a",
            "Z=a",
            "=a",
            "CN=a,",
        ];
        for bad in bad {
            assert_eq!(canonical(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_subject_is_that_of_a_real_certificate_as_openssl_prints_it() {
        use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
        use x509_cert::{Certificate, der::Decode as _};

        let mut params = CertificateParams::default();
        let mut name = DistinguishedName::new();
        // emailAddress (RFC 2985, section 5.2.1).
        name.push(DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]), "a@example.com");
        name.push(DnType::CountryName, "DE");
        name.push(DnType::CommonName, "Müller, A.");
        params.distinguished_name = name;
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let read = Certificate::from_der(certificate.der()).unwrap().tbs_certificate().subject().to_string();
        let printed = r"subject=CN=M\C3\BCller\, A.,C=DE,emailAddress=a@example.com";
        assert_eq!(canonical(printed), Some(read));
    }

    #[test]
    fn problems_are_noted_at_their_paths() {
        let (_, messages) = build(
            r#"[{"name":"","subject":"CN=a"},{"name":"b","subject":"CN = b, O = x"},{"name":"c"},{"name":"d","uri":"d"},
                {"name":"e","subject":"CN=a","routes":["["]},{"name":"f","subject":"CN=a"}]"#,
        );
        let expected = ["[0].name: ", "[1].subject: ", "[2]: ", "[3].uri: ", "[4].routes[0]: ", "[5].subject: two "];
        assert_eq!(messages.len(), expected.len(), "{messages:?}");
        for (messages, expected) in messages.iter().zip(expected) {
            assert!(messages.starts_with(expected), "{messages}");
        }
    }
}
