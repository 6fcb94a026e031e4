//! Builds an expression of the configuration, and notes everything that is wrong with it.

use super::{Expression, check, structure};
use crate::scope::{NameScope, UnfitValue, ValueType};
use domain::problem::{Path, Problems};

impl Expression {
    /// Compiles `source`, and notes at `path` everything that is wrong with it. Also returns the type of its result.
    pub fn build(source: &str, scope: &NameScope, path: &Path, problems: &mut Problems) -> Option<(Self, ValueType)> {
        let expression = match Self::compile(source) {
            Ok(expression) => expression,
            Err(wrong) => {
                wrong.note(path, problems);
                return None;
            }
        };
        let result = expression.check(scope, path, problems);
        Some((expression, result))
    }

    /// As [`Self::build`], for an expression that makes a list of objects. Returns the type of one of them, as far as it is known.
    pub fn build_objects(
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

    /// Whether it uses the variable `name`.
    #[must_use]
    pub fn uses(&self, name: &str) -> bool {
        structure::uses(self.program.expression(), name)
    }

    /// The whole numbers with which it compares the variable `name`.
    pub fn compared_with(&self, name: &str) -> Vec<i64> {
        structure::compared(self.program.expression(), name)
    }

    /// The whole numbers that it expects the variable `name` to have, as in `name == 1` and `name in [1, 2]`.
    pub fn expected_of(&self, name: &str) -> Vec<i64> {
        structure::expected(self.program.expression(), name)
    }

    /// Notes at `path` the names, fields and functions that it uses, and that do not exist in `scope`. Returns the type of its
    /// result.
    pub fn check(&self, scope: &NameScope, path: &Path, problems: &mut Problems) -> ValueType {
        check::check(self.program.expression(), scope, path, problems)
    }
}
