//! The selection of a repository's tags.

use std::{cmp::Reverse, collections::BTreeSet};

use backend::digests::list::{
    Sort, TagsConfig,
    selection::{Candidate, Selection},
};
use domain::problem::{Path, Problems};
use futures_util::FutureExt as _;
use lang::{evaluator::Context, scope::NameScope};
use minijinja::context;

/// The first line is a configuration, each other line a tag. The selection contains only tags that exist, as often as they
/// exist, in order, and does not depend on the order in which a registry lists them.
pub(super) fn tags(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let (config, tags) = text.split_once('\n').unwrap_or((text, ""));
    let Ok(config) = serde_json::from_str::<TagsConfig>(config) else { return };
    let unique: BTreeSet<&str> = tags.lines().collect();
    for sort in [None, Some(Sort::Semver), Some(Sort::Alphabetical)] {
        let mut problems = Problems::default();
        let selection = Selection::build(&config, sort, &NameScope::input(), &Path::root(), &mut problems);
        if !problems.into_vec().is_empty() {
            return;
        }
        let select = |tags: Vec<&str>| {
            let tags = tags.into_iter().map(str::to_owned).collect();
            let context = Context::here(context! { params => context! { branch => "main" } });
            selection.select(tags, &context).now_or_never().unwrap().ok()
        };
        let Some(selected) = select(unique.iter().copied().collect()) else { return };
        assert_eq!(select(unique.iter().copied().rev().collect()).as_ref(), Some(&selected));
        let names: Vec<&str> = selected.iter().map(|candidate| &*candidate.tag).collect();
        let distinct: BTreeSet<&str> = names.iter().copied().collect();
        assert!(distinct.len() == names.len() && distinct.is_subset(&unique), "{names:?}");
        match selection.sort() {
            Sort::Semver => {
                assert!(selected.iter().all(|candidate| candidate.version.is_some()));
                assert!(selected.is_sorted_by_key(|candidate: &Candidate| Reverse(candidate.version.clone())));
            }
            _ => assert!(names.is_sorted_by(|one, next| one > next), "{names:?}"),
        }
    }
}
