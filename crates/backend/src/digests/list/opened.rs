//! An opened tag: whether its contents fit, and its parameter set.

use std::{collections::BTreeMap, sync::Arc};

use semver::Version;
use serde_json::{Value, json};

use super::{pattern::GlobPattern, selection::Candidate};
use crate::{Building, digests::source};
use domain::generator::ParameterSet;
use oci::{Contents, Reference, Target, manifest::same_type};

/// The requirements for the contents of a tag.
#[derive(Debug)]
pub(super) struct ContentFilter {
    annotations: Vec<(String, GlobPattern)>,
    artifact_type: Option<String>,
}

impl ContentFilter {
    /// Parses the patterns, which are keys of the list that is built.
    pub(super) fn build(
        annotations: &BTreeMap<String, String>,
        artifact_type: Option<&str>,
        building: &mut Building<'_>,
    ) -> Self {
        let mut patterns = Vec::new();
        for (name, pattern) in annotations {
            let pattern = building.key("annotations").key(name).note(GlobPattern::parse(pattern));
            patterns.extend(pattern.map(|pattern| (name.clone(), pattern)));
        }
        if artifact_type.is_some_and(|name| !name.contains('/')) {
            building.key("artifactType").error_with_help(
                "it is not a media type",
                "write it whole, such as `application/vnd.cncf.helm.config.v1+json`",
            );
        }
        Self { annotations: patterns, artifact_type: artifact_type.map(str::to_owned) }
    }

    /// Whether any contents fit.
    pub(crate) const fn is_any(&self) -> bool {
        self.annotations.is_empty() && self.artifact_type.is_none()
    }

    /// Whether `contents` fit.
    pub(super) fn fits(&self, contents: &Contents) -> bool {
        let has = |(name, pattern): &(String, GlobPattern)| {
            contents.build_annotations().get(name).is_some_and(|value| pattern.fits(value))
        };
        let is_of = |wanted: &String| contents.artifact_type.as_ref().is_some_and(|own| same_type(own, wanted));
        let is_type = self.artifact_type.as_ref().is_none_or(is_of);
        is_type && self.annotations.iter().all(has)
    }
}

/// A tag, with its digest and contents.
#[derive(Debug)]
pub(super) struct OpenedTag {
    pub candidate: Candidate,
    pub reference: Reference,
    pub target: Target,
    pub contents: Arc<Contents>,
}

impl OpenedTag {
    /// Its parameter set.
    pub(crate) fn into_set(self) -> ParameterSet {
        let Self { candidate, reference, target, contents } = self;
        let mut set = source::parts(&reference, target.digest.as_str());
        let text = |value: &Option<String>| value.clone().unwrap_or_default().into();
        let platforms: Vec<String> = contents.platforms.iter().map(ToString::to_string).collect();
        set.insert("mediaType".to_owned(), target.media_type.into());
        set.insert("artifactType".to_owned(), text(&contents.artifact_type));
        set.insert("created".to_owned(), text(&contents.created));
        set.insert("revision".to_owned(), text(&contents.revision));
        set.insert("platforms".to_owned(), platforms.into());
        set.insert("annotations".to_owned(), json!(contents.build_annotations()));
        set.extend(candidate.version.map(|version| ("semver".to_owned(), parts_of(&version))));
        set.extend(candidate.captures.map(|captures| ("captures".to_owned(), captures)));
        ParameterSet(set)
    }
}

fn parts_of(version: &Version) -> Value {
    json!({
        "major": version.major,
        "minor": version.minor,
        "patch": version.patch,
        "prerelease": version.pre.as_str(),
        "build": version.build.as_str(),
    })
}
