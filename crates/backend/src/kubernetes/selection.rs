//! Which objects are read: their type, their namespaces and the selectors, with the templates of the configuration filled in.

use super::config::Config;
use crate::Building;
use domain::{error::BackendError, generator::Query};
use lang::{
    evaluator::{Context, Evaluator},
    template::Template,
};

/// The type of the objects.
#[derive(Debug, Clone)]
pub(super) struct ObjectType {
    /// `example.com/v1`, or `v1`.
    pub api_version: String,
    /// `Namespace`
    pub kind: String,
    /// `namespaces`, if the configuration has it.
    pub resource: Option<String>,
}

/// The objects to read, as configured.
#[derive(Debug)]
pub(super) struct Selection {
    pub of: ObjectType,
    namespaces: Vec<Template>,
    label_selector: Option<Template>,
    field_selector: Option<Template>,
    evaluator: Evaluator,
}

/// The objects that one query is about.
#[derive(Debug, Clone, Default)]
pub(super) struct Selected {
    /// All namespaces if there is none.
    pub namespaces: Vec<String>,
    pub label_selector: Option<String>,
    pub field_selector: Option<String>,
}

impl ObjectType {
    /// The segments of the path under which the API server has the group and version.
    pub(super) fn path(&self) -> Vec<&str> {
        match self.api_version.split_once('/') {
            Some((group, version)) => vec!["apis", group, version],
            None => vec!["api", &self.api_version],
        }
    }

    /// The resource as RBAC and messages name it: `namespaces`, `teams.example.com`.
    pub(super) fn full_name(&self, resource: &str) -> String {
        match self.api_version.split_once('/') {
            Some((group, _)) => format!("{resource}.{group}"),
            None => resource.to_owned(),
        }
    }
}

/// Whether `text` may be a name in a path: a part of a URL of Kubernetes.
pub(super) fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    text.bytes().all(is_plain) && text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.len() <= 253
}

impl Selection {
    /// Checks the keys of `config`.
    pub(super) fn build(config: &Config, building: &mut Building<'_>) -> Option<Self> {
        let names: Vec<&str> = config.api_version.split('/').collect();
        if names.len() > 2 || !names.iter().all(|name| is_name(name)) {
            building.key("apiVersion").error_with_help(
                format!("`{}` is not a group and a version", config.api_version.escape_debug()),
                "write it as the objects do, such as `v1` or `apps/v1`",
            );
        }
        if config.kind.is_empty() || !config.kind.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            building.key("kind").error_with_help(
                format!("`{}` is not a kind", config.kind.escape_debug()),
                "write it as the objects do, such as `ConfigMap`",
            );
        }
        if config.resource.as_ref().is_some_and(|resource| !is_name(resource)) {
            building.key("resource").error("it is not the plural name of a kind, such as `configmaps`");
        }
        if config.api_version == "v1" && config.kind == "Secret" {
            building.key("kind").error_with_help(
                "a Secret's content would become a part of Applications, which everybody who sees these can read",
                "read other objects, such as the ConfigMap or custom resource that the Secret belongs to",
            );
        }
        let namespaces = config.namespaces.iter().enumerate();
        let namespaces = namespaces.map(|(index, text)| {
            let mut at = building.key("namespaces");
            let mut at = at.index(index);
            if !text.contains("{{") && !text.contains("{%") && !is_name(text) {
                at.error(format!("`{}` is not the name of a namespace", text.escape_debug()));
            }
            at.template(text)
        });
        let namespaces: Vec<_> = namespaces.collect();
        let mut selector =
            |key: &str, text: &Option<String>| text.as_ref().map(|text| building.key(key).template(text));
        let label_selector = selector("labelSelector", &config.label_selector);
        let field_selector = selector("fieldSelector", &config.field_selector);
        let of = ObjectType {
            api_version: config.api_version.clone(),
            kind: config.kind.clone(),
            resource: config.resource.clone(),
        };
        Some(Self {
            of,
            namespaces: namespaces.into_iter().collect::<Option<_>>()?,
            label_selector: label_selector.map_or(Some(None), |built| built.map(Some))?,
            field_selector: field_selector.map_or(Some(None), |built| built.map(Some))?,
            evaluator: building.context.evaluator.clone(),
        })
    }

    /// What `query` is about.
    ///
    /// # Errors
    /// When a value is missing, or is not the name of a namespace.
    pub(super) async fn of_query(&self, query: &Query) -> Result<Selected, BackendError> {
        let context = Context::of_input(query, &self.evaluator);
        let mut selected = Selected::default();
        for template in &self.namespaces {
            let name = render(&context, template, "namespaces").await?;
            if !is_name(&name) {
                let message = format!("namespaces: `{}` is not the name of a namespace", name.escape_debug());
                return Err(BackendError::invalid_input(message));
            }
            if !selected.namespaces.contains(&name) {
                selected.namespaces.push(name);
            }
        }
        selected.label_selector = selector(&context, self.label_selector.as_ref(), "labelSelector").await?;
        selected.field_selector = selector(&context, self.field_selector.as_ref(), "fieldSelector").await?;
        Ok(selected)
    }
}

/// The text of a selector. A blank one would select all objects.
async fn selector(
    context: &Context,
    template: Option<&Template>,
    key: &'static str,
) -> Result<Option<String>, BackendError> {
    let Some(template) = template else { return Ok(None) };
    let text = render(context, template, key).await?;
    if text.trim().is_empty() {
        return Err(BackendError::invalid_input(format!("{key}: it is empty, and would select all objects")));
    }
    Ok(Some(text))
}

async fn render(context: &Context, template: &Template, key: &'static str) -> Result<String, BackendError> {
    let text = context.render(template).await;
    text.map_err(|error| error.within(key).into_backend_error(BackendError::invalid_input))
}
