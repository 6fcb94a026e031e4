//! Checks of a configuration with named images, and the answer while they are not built.

use super::super::{
    Config,
    outcome::{Fallback, OnMissing},
    revision::RevisionPolicy,
    source::{Image, parts},
};
use crate::Building;
use domain::generator::Parameters;
use oci::Reference;

/// Notes a problem if nothing ties the images to the commit that CI passed.
pub(super) fn check_ties(config: &Config, images: &[(String, Image)], building: &mut Building<'_>) {
    let Some(gate) = &config.gate else { return };
    let policy = config.revision.as_ref().map(|revision| revision.policy);
    check_commit(config, images, building);
    // Signed provenance is compared with the commit of CI's verdict.
    let is_compared = match policy {
        Some(RevisionPolicy::Require | RevisionPolicy::Prefer) => true,
        Some(RevisionPolicy::Ignore) => false,
        None => gate.names_commit(),
    };
    if config.provenance.as_ref().is_some_and(|provenance| provenance.commit.is_some() || is_compared) {
        return;
    }
    let are_tied = |is_tied: fn(&Image) -> bool| images.iter().all(|(_, image)| is_tied(image));
    let help = "add `revision: { expect: … }`, or name the commit in the tag: `{{ commit }}`";
    if gate.walks_back() && policy != Some(RevisionPolicy::Require) && !are_tied(Image::needs_commit) {
        let why = "with `walkBack` CI may rule on an earlier commit, and nothing ties the images to that commit";
        building.error_with_help(why, help);
    } else if matches!(policy, None | Some(RevisionPolicy::Ignore))
        && !are_tied(|image| image.needs_commit() || image.has_commit_parameter())
    {
        building.warning("CI passes a commit, and nothing ties the images to that commit", help);
    }
}

/// Notes a problem if the images name a commit, and no key names it.
fn check_commit(config: &Config, images: &[(String, Image)], building: &mut Building<'_>) {
    let Some(gate) = &config.gate else { return };
    if config.revision.is_none() && !gate.names_commit() && images.iter().any(|(_, image)| image.needs_commit()) {
        let why = "the images name a `commit`, and the gate does not know its commit";
        building.error_with_help(why, "give the gate its `sha`, or add `revision: { expect: … }`");
    }
}

/// The fallback while the images are not built.
pub(super) fn build_fallback(config: &Config, building: &mut Building<'_>) -> Option<Fallback> {
    let is_wanted = config.on_missing == OnMissing::Placeholder;
    let mut placeholders = Parameters::new();
    for (name, image) in &config.images {
        let mut images = building.key("images");
        let mut building = images.key(name);
        match &image.placeholder {
            Some(text) => {
                let mut building = building.key("placeholder");
                let parsed = Reference::parse(text).and_then(|reference| {
                    let digest =
                        reference.digest.clone().ok_or("it names no digest, and a placeholder must be pinned")?;
                    Ok((reference, digest))
                });
                if !is_wanted {
                    building.warning("never used", "it goes with `onMissing: placeholder`");
                }
                let (reference, digest) = building.note(parsed)?;
                placeholders.insert(name.clone(), parts(&reference, digest.as_str()).into());
            }
            None if is_wanted => {
                building.error_with_help(
                    "it has no `placeholder`, which `onMissing: placeholder` deploys until the image is built",
                    "name one: `placeholder: registry/repository:tag@sha256:…`",
                );
            }
            None => {}
        }
    }
    if config.images.is_empty() && is_wanted {
        building.key("onMissing").error("there is no image that needs a placeholder");
    }
    Some(match config.on_missing {
        OnMissing::Omit => Fallback::Omit,
        OnMissing::Error => Fallback::Error,
        OnMissing::Placeholder => Fallback::Placeholder(placeholders),
    })
}
