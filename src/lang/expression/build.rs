//! Builds an expression of the configuration, and notes everything that is wrong with it.

use super::{Expression, check};
use crate::{
    domain::problem::{Path, Problems},
    lang::scope::{NameScope, UnfitValue, ValueType},
};

impl Expression {
    /// Compiles `source`, and notes at `path` everything that is wrong with it. Also returns what is known of its result.
    pub(crate) fn build(
        source: &str,
        scope: &NameScope,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<(Self, ValueType)> {
        let expression = problems.note(path, Self::compile(source))?;
        let result = expression.check(scope, path, problems);
        Some((expression, result))
    }

    /// As [`Self::build`], for an expression that gives a list of objects. Returns what is known of one of them.
    pub(crate) fn build_objects(
        source: &str,
        scope: &NameScope,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<(Self, ValueType)> {
        let (expression, result) = Self::build(source, scope, path, problems)?;
        if let Some(UnfitValue { message, help }) = result.is_no_list_of_objects() {
            problems.mistake(path, message, help);
        }
        Some((expression, result.item()))
    }

    /// Notes at `path` the names, fields and functions that it uses, and that do not exist in `scope`. Returns what is known of its
    /// result.
    pub(crate) fn check(&self, scope: &NameScope, path: &Path, problems: &mut Problems) -> ValueType {
        check::check(self.program.expression(), scope, path, problems)
    }
}
