//! The scenes of the story, in their order.

use std::time::Duration;

use crate::source::{Fault, Set, Source};

/// How often Argo CD asks: `requeueAfterSeconds: 180` of the ApplicationSets.
pub(crate) const EVERY: Duration = Duration::from_mins(3);

/// A scene: what happens to the sources, and how often Argo CD asks meanwhile.
#[derive(Debug)]
pub struct Scene {
    /// Its name.
    pub name: &'static str,
    /// What happens, in a few words.
    pub title: &'static str,
    /// What happens, in a sentence or two.
    pub happens: &'static str,
    /// The ApplicationSets that it is about.
    pub(crate) sets: &'static [Set],
    /// What happens at its beginning.
    pub(crate) begin: fn(&Source),
    /// What happens at its end.
    pub(crate) end: fn(&Source),
    /// How often Argo CD asks.
    pub(crate) asks: u32,
    /// After how long it asks again.
    pub(crate) every: Duration,
}

/// All scenes.
pub const SCENES: [Scene; 7] = [
    Scene {
        name: "good-day",
        title: "A good day",
        happens: "Argo CD asks for tenants, for the clusters of a fleet, and for previews of pull requests.",
        sets: &Set::ALL,
        begin: |_| {},
        end: |_| {},
        asks: 2,
        every: EVERY,
    },
    Scene {
        name: "source-down",
        title: "A source is down",
        happens: "For ten minutes the API of tenants answers 503.",
        sets: &[Set::Tenants],
        begin: |source| source.set_fault(Some(Fault::TenantsDown)),
        end: |source| source.set_fault(None),
        asks: 4,
        every: EVERY,
    },
    Scene {
        name: "registry-down",
        title: "A registry is down",
        happens: "For ten minutes the registry answers 503, so nobody can say which images are there.",
        sets: &[Set::Previews],
        begin: |source| source.set_fault(Some(Fault::RegistryDown)),
        end: |source| source.set_fault(None),
        asks: 4,
        every: EVERY,
    },
    Scene {
        name: "empty-list",
        title: "200 OK, and an empty list",
        happens: "The API of tenants answers 200 and []. No tenant has left.",
        sets: &[Set::Tenants],
        begin: |source| source.set_fault(Some(Fault::TenantsEmpty)),
        end: |source| source.set_fault(None),
        asks: 4,
        every: EVERY,
    },
    Scene {
        name: "half-a-list",
        title: "200 OK, and half of the list",
        happens: "The fleet's API answers 200 with 6 of 12 memberships. GKE's returned 6 of 12 bindings on 2026-01-30. All clusters run.",
        sets: &[Set::Clusters],
        begin: |source| source.set_fault(Some(Fault::HalfFleet)),
        end: |source| source.set_fault(None),
        asks: 4,
        every: EVERY,
    },
    Scene {
        name: "unfinished-build",
        title: "CI has not finished",
        happens: "A pull request with a running preview gets a new commit. Its image is not there yet.",
        sets: &[Set::Previews],
        begin: Source::push_commit,
        end: Source::finish_ci,
        asks: 4,
        every: EVERY,
    },
    Scene {
        name: "true-removal",
        title: "A cluster is really removed",
        happens: "One of the clusters is taken out of the fleet, and the list stays so. Its Application should go. This route's guard lets no loss pass before it was seen for an hour (`maxShrink: 0%`; the default is 30 %, and 15 minutes).",
        sets: &[Set::Clusters],
        begin: Source::remove_cluster,
        end: |_| {},
        asks: 5,
        every: Duration::from_mins(20),
    },
];

/// The scene of a name.
pub fn named(name: &str) -> Option<&'static Scene> {
    SCENES.iter().find(|scene| scene.name == name)
}
