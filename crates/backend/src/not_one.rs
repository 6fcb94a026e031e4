//! Why a part of the configuration that has exactly one source has none.

/// Why there is no source.
#[derive(Debug, Clone, Copy)]
pub(super) enum NotOne {
    /// None is named.
    Missing,
    /// Several are.
    Several,
}

impl NotOne {
    /// The only one of `sources`.
    pub(super) fn check<T>(mut sources: impl Iterator<Item = T>) -> Result<T, Self> {
        match (sources.next(), sources.next()) {
            (Some(source), None) => Ok(source),
            (None, _) => Err(Self::Missing),
            (Some(_), Some(_)) => Err(Self::Several),
        }
    }
}
