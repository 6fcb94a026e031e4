//! The arguments of a builder: its context, the place of its configuration, and the problems that it notes.

use std::{cell::Cell, fmt, rc::Rc};

use super::BuildContext;
use domain::{
    problem::{Path, Problems},
    secret::SecretRef,
    section::Section,
};
use lang::{
    scope::ValueType,
    template::{Template, ValueContext},
};
use source::Nature;

/// The building of one part of a route. The parts of a backend share one note on the values that they read.
pub struct Building<'a> {
    /// The means that the part may use.
    pub context: BuildContext<'a>,
    /// Where its configuration is.
    pub path: Path,
    /// The problems of all parts.
    pub problems: &'a mut Problems,
    /// Whether a part that was built depends on the ApplicationSet's name.
    reads_application_set: Rc<Cell<bool>>,
}

impl<'a> Building<'a> {
    /// The building of a part whose configuration is at `path`.
    pub fn new(context: BuildContext<'a>, path: Path, problems: &'a mut Problems) -> Self {
        Self { context, path, problems, reads_application_set: Rc::default() }
    }

    /// The same at another path.
    pub fn at(&mut self, path: Path) -> Building<'_> {
        let reads_application_set = Rc::clone(&self.reads_application_set);
        Building { context: self.context, path, problems: self.problems, reads_application_set }
    }

    /// The part at the key `key` of this one.
    pub fn key(&mut self, key: &str) -> Building<'_> {
        self.at(self.path.key(key))
    }

    /// The part at the index `index` of this list.
    pub fn index(&mut self, index: usize) -> Building<'_> {
        self.at(self.path.index(index))
    }

    /// The same with another context.
    pub fn with<'b>(&'b mut self, context: BuildContext<'b>) -> Building<'b> {
        let (path, reads_application_set) = (self.path.clone(), Rc::clone(&self.reads_application_set));
        Building { context, path, problems: self.problems, reads_application_set }
    }

    /// A backend of its own at the key `kind`: its parts have a note of their own.
    pub(crate) fn backend(&mut self, kind: &str) -> Building<'_> {
        Building { reads_application_set: Rc::default(), ..self.key(kind) }
    }

    /// The nature of a backend that is built, with items of the type `item`.
    pub(crate) fn nature(&self, item: ValueType) -> Nature {
        Nature { reads_application_set: self.reads_application_set(), item, ..Nature::default() }
    }

    /// Whether a part that was built depends on the ApplicationSet's name.
    #[must_use]
    pub fn reads_application_set(&self) -> bool {
        self.reads_application_set.get()
    }

    /// Notes whether a part depends on the ApplicationSet's name.
    pub fn note_reads(&self, reads_application_set: bool) {
        self.reads_application_set.set(self.reads_application_set.get() || reads_application_set);
    }

    /// The same for parts that need no context but the folder of its files.
    pub(crate) fn section(&mut self) -> Section<'_> {
        Section::new(self.context.base, self.path.clone(), self.problems)
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

    /// Notes here if `secret` cannot be read.
    pub(crate) fn check_secret(&mut self, secret: &SecretRef) {
        secret.check(self.context.base, &self.path, self.problems);
    }

    /// The template `source` of a text, or `None` with its problems noted here.
    pub(crate) fn template(&mut self, source: &str) -> Option<Template> {
        let template = Template::build(source, ValueContext::Text, self.context.scope, &self.path, self.problems)?;
        self.note_reads(template.reads_application_set());
        Some(template)
    }

    /// The template that was `parsed` for this place, or `None` with the error noted here.
    pub(crate) fn parsed<E: fmt::Display>(&mut self, parsed: Result<Template, E>) -> Option<Template> {
        let template = self.note(parsed)?;
        self.check_template(&template);
        Some(template)
    }

    /// Notes here the unknown names that `template` uses.
    pub(crate) fn check_template(&mut self, template: &Template) {
        template.check(self.context.scope, &self.path, self.problems);
        self.note_reads(template.reads_application_set());
    }
}
