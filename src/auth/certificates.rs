//! Callers by the certificate that they show; which ones are believed says `server.tls.clientCa`.

use std::{collections::HashMap, sync::Arc};

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Allowance, Caller, Role, Scope, check_name};
use crate::problem::{Path, Problems};

/// One caller by its certificate: its name, and exactly one of `subject` and `uri`. A call that brings a token too is its token's.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CertificateConfig {
    /// The caller's name in logs.
    pub name: String,
    /// The certificate's whole subject, as `openssl x509 -noout -subject -nameopt RFC2253` prints it: `CN=argocd,O=platform`.
    pub subject: Option<String>,
    /// A URI among the certificate's names, such as a SPIFFE ID.
    pub uri: Option<String>,
    /// The routes that it opens, as globs over their names; all of them unless set.
    pub routes: Option<Vec<String>>,
    /// The ApplicationSets that it may ask for, as globs over the name in the call; all of them unless set.
    pub application_sets: Option<Vec<String>>,
    /// How many calls per second they may make together; any unless set. More are refused with 429.
    #[schemars(range(min = 1))]
    pub rate: Option<u32>,
    /// How many of their calls may be under way at once; any unless set. More are refused with 429.
    #[schemars(range(min = 1))]
    pub concurrency: Option<usize>,
}

/// All callers that certificates tell.
#[derive(Debug, Default)]
pub struct Certificates {
    by_subject: HashMap<String, Arc<Caller>>,
    by_uri: HashMap<String, Arc<Caller>>,
}

impl Certificates {
    /// What is wrong is noted below `path`, which is that of the list.
    pub fn build(configs: &[CertificateConfig], path: &Path, problems: &mut Problems) -> Self {
        let mut built = Self::default();
        for (index, config) in configs.iter().enumerate() {
            let path = path.index(index);
            check_name(&config.name, &path.key("name"), problems);
            let (routes, application_sets) = (config.routes.as_deref(), config.application_sets.as_deref());
            let scope = Scope::build(Role::Caller, routes, application_sets, &path, problems);
            let allowance = Allowance::build(config.rate, config.concurrency, &path, problems);
            let (key, told, callers) = match (&config.subject, &config.uri) {
                (Some(subject), None) => ("subject", subject, &mut built.by_subject),
                (None, Some(uri)) => ("uri", uri, &mut built.by_uri),
                _ => {
                    problems.error(&path, "a certificate is told by exactly one of `subject` and `uri`");
                    continue;
                }
            };
            let at = path.key(key);
            if key == "subject" && !is_subject(told) {
                let help =
                    "as `openssl x509 -noout -subject -nameopt RFC2253 -in tls.crt` prints it: CN=argocd,O=platform";
                problems.error_with_help(&at, format!("`{told}` is no subject of a certificate"), help);
            } else if key == "uri" && !told.contains(':') {
                problems.error(&at, format!("`{told}` is no URI such as spiffe://example.com/ns/argocd"));
            }
            let caller = scope.map(|scope| Arc::new(Caller::new(config.name.clone(), Role::Caller, scope, allowance)));
            if let Some(caller) = caller
                && callers.insert(told.clone(), caller).is_some()
            {
                problems.error(&at, "two callers are told by this");
            }
        }
        built
    }

    /// What callers may ask, by name.
    pub fn allowances(&self) -> impl Iterator<Item = (&str, &Arc<Allowance>)> {
        self.by_subject.values().chain(self.by_uri.values()).map(|caller| caller.allowance())
    }

    /// The same, to be put in another's place.
    pub fn allowances_mut(&mut self) -> impl Iterator<Item = (&str, &mut Arc<Allowance>)> {
        let callers = self.by_subject.values_mut().chain(self.by_uri.values_mut());
        callers.map(|caller| Arc::make_mut(caller).allowance_mut())
    }

    /// The caller with this subject, else the one with the first of `uris` that is one's.
    pub fn find(&self, subject: &str, uris: &[String]) -> Option<Arc<Caller>> {
        let by_subject = self.by_subject.get(subject);
        by_subject.or_else(|| uris.iter().find_map(|uri| self.by_uri.get(uri))).cloned()
    }
}

/// Whether `text` could be what RFC 4514 makes of a subject: without the spaces that other tools put after commas.
fn is_subject(text: &str) -> bool {
    text.contains('=') && !text.contains(", ") && !text.contains(" = ")
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
    fn a_certificate_tells_its_caller() {
        let (certificates, told) =
            build(r#"[{"name":"a","subject":"CN=a,O=x","routes":["a-*"]},{"name":"b","uri":"spiffe://x/ns/b"}]"#);
        assert_eq!(told, Vec::<String>::new());
        let name = |subject: &str, uris: &[&str]| {
            let uris: Vec<String> = uris.iter().map(|&uri| uri.to_owned()).collect();
            certificates.find(subject, &uris).map(|caller| caller.name.clone())
        };
        assert_eq!(name("CN=a,O=x", &["spiffe://x/ns/b"]).as_deref(), Some("a"));
        assert_eq!(name("", &["https://x", "spiffe://x/ns/b"]).as_deref(), Some("b"));
        for stranger in ["", "CN=a", "CN=a,O=X", "CN=a,O=x,C=y", "spiffe://x/ns/b"] {
            assert_eq!(name(stranger, &["spiffe://x/ns/bb", "CN=a,O=x"]), None, "{stranger}");
        }
        assert!(!certificates.find("CN=a,O=x", &[]).unwrap().may_ask("b"));
    }

    #[test]
    fn what_is_wrong_is_told_at_its_place() {
        let (_, told) = build(
            r#"[{"name":"","subject":"CN=a"},{"name":"b","subject":"CN = b, O = x"},{"name":"c"},{"name":"d","uri":"d"},
                {"name":"e","subject":"CN=a","routes":["["]},{"name":"f","subject":"CN=a"}]"#,
        );
        let expected = ["[0].name: ", "[1].subject: ", "[2]: ", "[3].uri: ", "[4].routes[0]: ", "[5].subject: two "];
        assert_eq!(told.len(), expected.len(), "{told:?}");
        for (told, expected) in told.iter().zip(expected) {
            assert!(told.starts_with(expected), "{told}");
        }
    }
}
