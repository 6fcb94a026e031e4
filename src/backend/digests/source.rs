//! Where one image is looked up: a registry, or an OCI image layout in a folder.

use minijinja::Value as TemplateValue;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    base_dir::BaseDir,
    error::BackendError,
    generator::{Evidence, Parameters},
    oci::{Layout, Reference, Registries, reference::is_registry},
    template::{INPUT_SCOPE, Place, Template},
};

/// An image's reference, parsed as far as it goes without parameters.
#[derive(Debug)]
pub enum Source {
    /// `registry/repository:tag`
    Registry(Template),
    /// `oci:folder:name`
    Layout {
        /// The folder.
        layout: Layout,
        /// The `org.opencontainers.image.ref.name` that is looked for.
        name: Template,
    },
}

/// What was learned of one image.
#[derive(Debug)]
pub enum Found {
    /// Its parts, under the names that templates use.
    Present(Parameters),
    /// There is provably none.
    Missing(Evidence),
}

impl Source {
    /// Parses an `image:` of the configuration.
    ///
    /// # Errors
    /// When it is no reference, or a parameter could choose the registry or the folder.
    pub fn parse(image: &str, base: &BaseDir) -> Result<Self, String> {
        if let Some(rest) = image.strip_prefix("oci:") {
            let (folder, name) = rest.split_once(':').ok_or("an image layout is written `oci:folder:name`")?;
            if folder.contains("{{") || folder.contains("{%") || folder.is_empty() {
                return Err("the folder of an image layout must stand here as it is, without `{{`".to_owned());
            }
            let name = Template::parse(name, Place::Reference, INPUT_SCOPE)?;
            return Ok(Self::Layout { layout: Layout::new(base.resolve(folder)), name });
        }
        let template = Template::parse(image, Place::Reference, INPUT_SCOPE)?;
        let host = template.fixed_prefix().split_once('/').map(|(host, _)| host);
        if !host.is_some_and(is_registry) {
            return Err("an image begins with its registry's host, such as `registry.example.com/org/front:main`; \
                        no `{{` may stand in it"
                .to_owned());
        }
        if template.fixed_prefix() == image {
            Reference::parse(image)?;
        }
        Ok(Self::Registry(template))
    }

    /// Looks the image up.
    ///
    /// # Errors
    /// When the parameters make no reference, or its source gives no clear answer by `deadline`.
    pub async fn look_up(
        &self,
        context: &TemplateValue,
        registries: &Registries,
        deadline: Instant,
    ) -> Result<Found, BackendError> {
        match self {
            Self::Registry(template) => {
                let text = template.render(context).map_err(BackendError::invalid_input)?;
                let reference = Reference::parse(&text).map_err(BackendError::invalid_input)?;
                let Some(digest) = registries.digest(&reference, deadline).await? else {
                    return Ok(Found::Missing(Evidence {
                        asked: format!("the manifest of {reference}"),
                        answered: "404, there is none".into(),
                    }));
                };
                let item = json!({
                    "registry": reference.registry,
                    "repository": reference.repository,
                    "tag": reference.tag.as_deref().unwrap_or_default(),
                    "digest": digest.as_str(),
                    "pinned": format!("{}/{}@{digest}", reference.registry, reference.repository),
                });
                Ok(Found::present(item))
            }
            Self::Layout { layout, name } => {
                let name = name.render(context).map_err(BackendError::invalid_input)?;
                let Some(digest) = layout.digest(&name).await? else {
                    return Ok(Found::Missing(Evidence {
                        asked: format!("the manifest of {name} in {}", layout.folder().display()),
                        answered: "the index names none".into(),
                    }));
                };
                let tag = name.rsplit_once(':').map_or(name.as_str(), |(_, tag)| tag);
                Ok(Found::present(json!({ "tag": tag, "digest": digest.as_str() })))
            }
        }
    }

    /// Whether the reference depends on the ApplicationSet's name.
    #[must_use]
    pub fn reads_application_set(&self) -> bool {
        match self {
            Self::Registry(template) | Self::Layout { name: template, .. } => template.reads_application_set(),
        }
    }
}

impl Found {
    fn present(item: serde_json::Value) -> Self {
        match item {
            serde_json::Value::Object(item) => Self::Present(item),
            _ => Self::Present(Parameters::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_stands_in_the_configuration() {
        let parse = |image: &str| Source::parse(image, &BaseDir::default());
        assert!(parse("registry.example.com/org/front:{{ params.branch | tag }}").is_ok());
        assert!(parse("localhost:5000/{{ params.repository }}:1").is_ok());
        assert!(parse("oci:demo/images:front:{{ params.branch | tag }}").is_ok());
        for bad in [
            "{{ params.registry }}/front:1",
            "r.example{{ params.x }}/front:1",
            "org/front:1",
            "r.example/front",
            "oci:{{ params.folder }}:x",
            "oci:folder",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
