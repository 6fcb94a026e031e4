//! A key of a gate's configuration whose value is a template.

use crate::{Building, digests::commit::Commit};
use domain::error::BackendError;
use lang::{evaluator::Context, template::Template};

/// A template and its key.
#[derive(Debug)]
pub struct Field {
    key: &'static str,
    template: Template,
}

impl Field {
    /// Parses the template at the key `key` of a gate.
    pub fn build(source: &str, key: &'static str, gate: &mut Building<'_>) -> Option<Self> {
        let mut building = gate.key(key);
        if source.trim().is_empty() {
            building.error("it is empty");
            return None;
        }
        Some(Self { key, template: building.template(source)? })
    }

    /// Its text, never empty: APIs ignore an empty filter.
    ///
    /// # Errors
    /// When the text is empty or has a control character.
    pub async fn text(&self, context: &Context) -> Result<String, BackendError> {
        let text = self.render(context).await?;
        if text.trim().is_empty() {
            return Err(self.wrong(&format!("`{}` is empty for this call", self.template.source())));
        }
        if text.contains(char::is_control) {
            return Err(self.wrong("it has a control character"));
        }
        Ok(text)
    }

    /// The full commit in it.
    ///
    /// # Errors
    /// When it is not a full commit; the text has an alternative.
    pub async fn commit(&self, context: &Context) -> Result<Commit, BackendError> {
        let text = self.render(context).await?;
        Commit::parse(&text).map_err(|error| self.wrong(&error.to_string()))
    }

    /// The names in it, separated by slashes. Empty names and dot segments are refused, so that no value leads elsewhere.
    ///
    /// # Errors
    /// When a name is refused.
    pub async fn names(&self, context: &Context) -> Result<Vec<String>, BackendError> {
        let text = self.text(context).await?;
        let names: Vec<String> = text.split('/').map(str::to_owned).collect();
        if names.iter().any(|name| matches!(name.trim(), "" | "." | "..")) {
            let shown: String = text.chars().take(80).collect();
            return Err(self.wrong(&format!("`{shown}` has an empty name or dots between its slashes")));
        }
        Ok(names)
    }

    /// The owner and the name in it.
    ///
    /// # Errors
    /// When there are not exactly two names.
    pub(crate) async fn owner_and_name(&self, context: &Context) -> Result<[String; 2], BackendError> {
        <[String; 2]>::try_from(self.names(context).await?).map_err(|names| {
            let shown: String = names.join("/").chars().take(80).collect();
            self.wrong(&format!("`{shown}` is not written `owner/name`"))
        })
    }

    async fn render(&self, context: &Context) -> Result<String, BackendError> {
        let text = context.render(&self.template).await;
        text.map_err(|error| error.within(self.key).into_backend_error(BackendError::invalid_input))
    }

    fn wrong(&self, why: &str) -> BackendError {
        BackendError::invalid_input(format!("{}: {why}", self.key))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use lang::{scope::NameScope, template::ValueContext};

    fn field(source: &str) -> Field {
        let template = Template::parse(source, ValueContext::Text, &NameScope::input()).unwrap();
        Field { key: "repository", template }
    }

    #[test]
    fn no_value_leads_to_another_repository() {
        let context = |name: &str| Context::here(minijinja::context! { params => minijinja::context! { name } });
        let repository = field("org/{{ params.name }}");
        assert_eq!(repository.owner_and_name(&context("app")).now_or_never().unwrap().unwrap(), ["org", "app"]);
        for bad in ["", ".", "..", "a/b", "../other", "a/../../b", " ", "a\nb"] {
            let error = repository.owner_and_name(&context(bad)).now_or_never().unwrap().unwrap_err();
            assert!(error.message.starts_with("repository: "), "{error}");
        }
        let blank = field("{{ params.name }}").text(&context(" ")).now_or_never().unwrap();
        assert!(blank.unwrap_err().message.contains("is empty for this call"));
    }
}
