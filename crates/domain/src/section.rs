//! A part of the configuration while it is built: the folder of its files, its place, and the problems that are noted.

use std::fmt;

use crate::{
    file::base_dir::BaseDir,
    problem::{Path, Problems},
};

/// One part of the configuration, whose files are relative to `base`.
pub struct Section<'a> {
    /// The folder to which its files are relative.
    pub base: &'a BaseDir,
    /// Where it is.
    pub path: Path,
    /// The problems of all parts.
    pub problems: &'a mut Problems,
}

impl<'a> Section<'a> {
    /// The part at `path`.
    pub const fn new(base: &'a BaseDir, path: Path, problems: &'a mut Problems) -> Self {
        Self { base, path, problems }
    }

    /// The part at the key `key` of this one.
    pub fn key(&mut self, key: impl Into<String>) -> Section<'_> {
        Section { base: self.base, path: self.path.key(key), problems: self.problems }
    }

    /// Notes an error here.
    pub fn error(&mut self, message: impl Into<String>) {
        self.problems.error(&self.path, message);
    }

    /// Notes an error here, with advice.
    pub fn error_with_help(&mut self, message: impl Into<String>, help: impl Into<String>) {
        self.problems.error_with_help(&self.path, message, help);
    }

    /// Notes a mistake here: the part fails as soon as it is used.
    pub fn mistake(&mut self, message: impl Into<String>, help: impl Into<String>) {
        self.problems.mistake(&self.path, message, help);
    }

    /// Notes a warning here: it works, but is probably not intended.
    pub fn warning(&mut self, message: impl Into<String>, help: impl Into<String>) {
        self.problems.warning(&self.path, message, help);
    }

    /// The value of `result`, or `None` with the error noted here.
    pub fn note<T, E: fmt::Display>(&mut self, result: Result<T, E>) -> Option<T> {
        self.problems.note(&self.path, result)
    }
}
