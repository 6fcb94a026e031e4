//! Orders the versions of a plugin.

/// The rank of a version. No version ranks highest, then versions with numbers, then all other texts in alphabetical order.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    /// No number at all: `main`.
    Other(String),
    /// `v1.0`, `1.2.3-rc.1`.
    Numbers(semver::Version, String),
    /// No version.
    None,
}

impl Version {
    /// The rank of `version`.
    #[must_use]
    pub(crate) fn of(version: Option<&str>) -> Self {
        let Some(version) = version else { return Self::None };
        let text = version.strip_prefix('v').unwrap_or(version);
        let end = text.find(['-', '+']).unwrap_or(text.len());
        let (core, rest) = text.split_at(end);
        let missing = 3_usize.saturating_sub(core.split('.').count());
        match semver::Version::parse(&format!("{core}{}{rest}", ".0".repeat(missing))) {
            Ok(numbers) => Self::Numbers(numbers, version.to_owned()),
            Err(_) => Self::Other(version.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_the_lowest_to_the_highest() {
        let ranks = ["edge", "main", "v1.0-rc.1", "1", "v1.0.1", "v1.9", "1.10", "v2"].map(Some);
        let ranks: Vec<Version> = ranks.into_iter().chain([None]).map(Version::of).collect();
        assert!(ranks.is_sorted(), "{ranks:?}");
    }
}
