//! Builds as SLSA provenance describes them (<https://slsa.dev/spec/v1.0/provenance>), and whether they are as the configuration demands.
//!
//! A certificate shows which run of CI signed. The predicate was written by that run, and must agree. With a key there is no
//! certificate: the predicate is then the word of the key's owner.

use serde_json::Value;

use super::{claims::Claims, config::ProvenanceConfig, signer::build_glob};
use domain::{
    document::excerpt,
    glob::NameGlob,
    problem::{Path, Problems},
};

/// Why a build is not as demanded.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum ProvenanceError {
    /// The predicate has another form.
    #[error("its provenance has no `buildDefinition`")]
    NoDefinition,
    /// The certificate and the predicate disagree.
    #[error("its certificate names the {part} `{certified}`, and its provenance `{written}`")]
    Disagree {
        /// The part of the build.
        part: &'static str,
        /// The part by the certificate.
        certified: String,
        /// The part by the predicate.
        written: String,
    },
    /// A part is another one than demanded.
    #[error("its provenance is of the {part} `{found}`, not `{wanted}`")]
    Differs {
        /// The part of the build.
        part: &'static str,
        /// The part that was found.
        found: String,
        /// The part that is demanded.
        wanted: String,
    },
    /// A part is missing.
    #[error("its {document} names no {part}")]
    Missing {
        /// The document that lacks it: the certificate, or the provenance.
        document: &'static str,
        /// The part of the build.
        part: &'static str,
    },
    /// It names this many commits of the repository.
    #[error("its provenance names {0} commits of the repository")]
    SeveralCommits(usize),
    /// Its commit is shortened, or a branch.
    #[error("`{0}` in its provenance is not a full commit")]
    NotACommit(String),
}

/// The demands on a build.
#[derive(Debug)]
pub(super) struct Provenance {
    repository: Option<String>,
    workflow: Option<String>,
    /// The glob, and its text for messages.
    builder: Option<(NameGlob, String)>,
    events: Vec<String>,
}

/// A build that is as demanded, but for its commit and its event.
#[derive(Debug, Clone)]
pub(super) struct Build {
    commit: String,
    /// The event that caused it, for messages.
    event: String,
    /// Whether its commit may be that of a merge.
    is_of_merge: bool,
    /// Why the event is not one that is accepted.
    wrong_event: Option<ProvenanceError>,
}

/// A build that is as demanded.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Built {
    /// From this commit, which is the expected one.
    From(String),
    /// From another commit than the expected one.
    Other {
        /// The commit.
        commit: String,
        /// The text for the evidence.
        why: String,
    },
}

impl Build {
    /// Compares it with the expected commit. `None`: any.
    ///
    /// # Errors
    /// When an event caused it that is not accepted.
    pub(super) fn compare(&self, expected: Option<&str>) -> Result<Built, ProvenanceError> {
        let other = expected.filter(|expected| !expected.eq_ignore_ascii_case(&self.commit));
        // A build of a merge names another commit, with any accepted events. The text below explains that.
        if (other.is_none() || !self.is_of_merge)
            && let Some(why) = &self.wrong_event
        {
            return Err(why.clone());
        }
        let commit = self.commit.clone();
        let Some(expected) = other else { return Ok(Built::From(commit)) };
        let mut why = format!("its provenance names the commit {commit}, not {}", excerpt(expected.as_bytes(), 64));
        if self.is_of_merge {
            let hint = "so the commit is that of a merge, which is in no branch: build on `push`";
            why = format!("{why}; it was built for `{}`, {hint}", self.event);
        }
        Ok(Built::Other { commit, why })
    }
}

impl Provenance {
    /// Checks `config` at `path`. Problems are noted.
    pub(super) fn build(config: &ProvenanceConfig, path: &Path, problems: &mut Problems) -> Option<Self> {
        for (key, value) in [("repository", &config.repository), ("workflow", &config.workflow)] {
            if value.as_ref().is_some_and(|value| value.trim().is_empty()) {
                problems.error(&path.key(key), "it is empty, so nothing would match");
                return None;
            }
        }
        if config.repository.is_none() {
            problems.warning(
                path,
                "builds of every repository are accepted, if one of the signers signed their provenance",
                "name the repository: `repository: https://github.com/org/repo`",
            );
        }
        for (index, event) in config.events.iter().enumerate().filter(|(_, event)| is_merge(event)) {
            problems.warning(
                &path.key("events").index(index),
                format!("a build for `{event}` is of a merge commit, which is never the head of a branch"),
                "build on `push`, or let `commit` be that of the merge",
            );
        }
        let builder = match &config.builder {
            None => None,
            Some(glob) => Some((build_glob(glob, &path.key("builder"), problems)?, glob.clone())),
        };
        let ProvenanceConfig { repository, workflow, events, .. } = config.clone();
        Some(Self { repository, workflow, builder, events })
    }

    /// Checks the build that `predicate` describes, whose signer has `claims`. Which commit is expected is compared later: see
    /// [`Build::compare`].
    ///
    /// # Errors
    /// When it is not as demanded, or `predicate` and `claims` disagree.
    pub(super) fn check(&self, predicate: &Value, claims: Option<&Claims>) -> Result<Build, ProvenanceError> {
        let said = Said::read(predicate)?;
        let repository = self.repository(&said, claims)?;
        self.check_workflow(&said, claims, repository)?;
        self.check_builder(&said, claims)?;
        let event = event(&said, claims)?;
        let commit = commit(&said, claims, repository)?;
        let is_of_merge = event.is_some_and(is_merge)
            || claims.and_then(|claims| claims.git_ref.as_deref()).is_some_and(|name| name.starts_with("refs/pull/"));
        let wrong_event = self.check_event(event, claims).err();
        let event = excerpt(event.unwrap_or("a pull request").as_bytes(), 40);
        Ok(Build { commit, event, is_of_merge, wrong_event })
    }

    /// The repository that was built.
    fn repository<'a>(
        &self,
        said: &'a Said<'a>,
        claims: Option<&'a Claims>,
    ) -> Result<Option<&'a str>, ProvenanceError> {
        let certified = claims.and_then(|claims| claims.repository.as_deref());
        agree("repository", certified, said.repository)?;
        let found = if claims.is_some() { certified } else { said.repository };
        match (&self.repository, found) {
            (Some(wanted), Some(found)) if wanted != found => Err(differs("repository", found, wanted)),
            (Some(_), None) => Err(missing("repository", claims)),
            _ => Ok(found),
        }
    }

    fn check_workflow(
        &self,
        said: &Said<'_>,
        claims: Option<&Claims>,
        repository: Option<&str>,
    ) -> Result<(), ProvenanceError> {
        let Some(wanted) = &self.workflow else { return Ok(()) };
        // A certificate names the whole of it: repository, path and branch.
        let certified = match claims {
            None => None,
            Some(claims) => {
                let whole = claims.workflow.as_deref().ok_or_else(|| missing("workflow", Some(claims)))?;
                let path = repository.and_then(|repository| whole.strip_prefix(repository)?.strip_prefix('/'));
                let path = path.ok_or_else(|| differs("workflow", whole, wanted))?.trim_start_matches('/');
                Some(path.split_once('@').map_or(path, |(path, _)| path))
            }
        };
        agree("workflow", certified, said.workflow)?;
        match certified.or(said.workflow) {
            Some(found) if found == wanted => Ok(()),
            Some(found) => Err(differs("workflow", found, wanted)),
            None => Err(missing("workflow", claims)),
        }
    }

    fn check_builder(&self, said: &Said<'_>, claims: Option<&Claims>) -> Result<(), ProvenanceError> {
        let Some((wanted, text)) = &self.builder else { return Ok(()) };
        let certified = match claims {
            None => None,
            Some(claims) => Some(claims.builder.as_deref().ok_or_else(|| missing("builder", Some(claims)))?),
        };
        let written = said.builder.ok_or_else(|| missing("builder", None))?;
        match certified.into_iter().chain([written]).find(|builder| !wanted.matches(builder)) {
            Some(other) => Err(differs("builder", other, text)),
            None => Ok(()),
        }
    }

    fn check_event(&self, event: Option<&str>, claims: Option<&Claims>) -> Result<(), ProvenanceError> {
        if self.events.is_empty() {
            return Ok(());
        }
        let found = event.ok_or_else(|| missing("event", claims))?;
        if self.events.iter().any(|event| event == found) {
            Ok(())
        } else {
            Err(differs("event", found, &self.events.join("` or `")))
        }
    }
}

/// The event that caused the build, if it is known.
fn event<'a>(said: &Said<'a>, claims: Option<&'a Claims>) -> Result<Option<&'a str>, ProvenanceError> {
    let certified = claims.and_then(|claims| claims.event.as_deref());
    agree("event", certified, said.event)?;
    Ok(if claims.is_some() { certified } else { said.event })
}

/// The fields of a predicate.
#[derive(Debug)]
struct Said<'a> {
    repository: Option<&'a str>,
    workflow: Option<&'a str>,
    builder: Option<&'a str>,
    event: Option<&'a str>,
    /// The sources with a commit: their URI, and the commit.
    sources: Vec<(&'a str, &'a str)>,
}

impl<'a> Said<'a> {
    fn read(predicate: &'a Value) -> Result<Self, ProvenanceError> {
        let definition = predicate.get("buildDefinition").filter(|definition| definition.is_object());
        let definition = definition.ok_or(ProvenanceError::NoDefinition)?;
        let text = |from: &'a Value, pointer: &str| from.pointer(pointer).and_then(Value::as_str);
        let dependencies = definition.get("resolvedDependencies").and_then(Value::as_array);
        let sources = dependencies.into_iter().flatten().filter_map(|source| {
            let uri = text(source, "/uri").unwrap_or_default();
            let sha1 = || text(source, "/digest/sha1").filter(|_| uri.starts_with("git+"));
            Some((uri, text(source, "/digest/gitCommit").or_else(sha1)?))
        });
        let sources: Vec<_> = sources.collect();
        let only = || if let [(uri, _)] = *sources { repository_of(uri) } else { None };
        Ok(Self {
            repository: text(definition, "/externalParameters/workflow/repository").or_else(only),
            workflow: text(definition, "/externalParameters/workflow/path"),
            builder: text(predicate, "/runDetails/builder/id"),
            event: text(definition, "/internalParameters/github/event_name"),
            sources,
        })
    }
}

/// The commit that was built: that of the certificate, with which the predicate must agree, or that of the predicate.
fn commit(said: &Said<'_>, claims: Option<&Claims>, repository: Option<&str>) -> Result<String, ProvenanceError> {
    // A commit of another source, such as of an action that was used, is not the commit that was built.
    let is_own = |uri: &str| repository.is_none_or(|repository| repository_of(uri) == Some(repository));
    let own = said.sources.iter().filter(|(uri, _)| is_own(uri));
    let mut commits: Vec<&str> = own.map(|(_, commit)| *commit).collect();
    commits.sort_unstable();
    commits.dedup();
    let [written] = *commits else {
        let count = commits.len();
        return Err(if count == 0 { missing("commit", None) } else { ProvenanceError::SeveralCommits(count) });
    };
    let certified = match claims {
        None => None,
        Some(claims) => Some(claims.commit.as_deref().ok_or_else(|| missing("commit", Some(claims)))?),
    };
    agree("commit", certified, Some(written))?;
    let is_full =
        [40, 64].contains(&written.len()) && written.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_full { Ok(written.to_owned()) } else { Err(ProvenanceError::NotACommit(excerpt(written.as_bytes(), 64))) }
}

/// The repository of a URI such as `git+https://github.com/org/repo@refs/heads/main`.
fn repository_of(uri: &str) -> Option<&str> {
    let url = uri.strip_prefix("git+").unwrap_or(uri);
    let (_, after) = url.split_once("://")?;
    let path = url.len() - after.len() + after.find('/')?;
    let end = url[path..].find('@').map_or(url.len(), |at| path + at);
    let url = url[..end].trim_end_matches('/');
    Some(url.strip_suffix(".git").unwrap_or(url))
}

/// Whether builds for `event` are of a merge that no branch has.
fn is_merge(event: &str) -> bool {
    event.starts_with("pull_request") || event.starts_with("merge_request")
}

fn agree(part: &'static str, certified: Option<&str>, written: Option<&str>) -> Result<(), ProvenanceError> {
    match (certified, written) {
        (Some(certified), Some(written)) if certified != written => {
            let [certified, written] = [certified, written].map(|text| excerpt(text.as_bytes(), 200));
            Err(ProvenanceError::Disagree { part, certified, written })
        }
        _ => Ok(()),
    }
}

fn differs(part: &'static str, found: &str, wanted: &str) -> ProvenanceError {
    ProvenanceError::Differs { part, found: excerpt(found.as_bytes(), 200), wanted: wanted.to_owned() }
}

const fn missing(part: &'static str, claims: Option<&Claims>) -> ProvenanceError {
    let document = if claims.is_some() { "certificate" } else { "provenance" };
    ProvenanceError::Missing { document, part }
}
