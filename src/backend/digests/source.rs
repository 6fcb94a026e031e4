//! Where one image is looked up: a registry, or an OCI image layout in a folder.

use minijinja::Value as TemplateValue;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    base_dir::BaseDir,
    error::BackendError,
    generator::{Evidence, Parameters},
    oci::{Digest, Layout, Lookup, Patience, Reference, Registries, reference::is_registry},
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

/// What is known of one image.
#[derive(Debug)]
pub struct Found {
    /// Its parts, under the names that templates use; `None` when there is provably none.
    pub image: Option<Parameters>,
    /// How that is known.
    pub evidence: Evidence,
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
        let (Self::Registry(template) | Self::Layout { name: template, .. }) = self;
        let text =
            template.render(context).map_err(|error| unclear("its reference", BackendError::invalid_input(error)))?;
        match self {
            Self::Registry(_) => {
                let reference = Reference::parse(&text)
                    .map_err(|error| unclear("its reference", BackendError::invalid_input(error)))?;
                let asked = format!("the manifest of {reference}");
                let patience = Patience { deadline, max_age: std::time::Duration::ZERO };
                let found = registries.look_up(&reference, patience).await.map_err(|error| unclear(&asked, error))?;
                let found = match found {
                    Lookup::There(target) => Some(target.digest),
                    Lookup::Missing(_) => None,
                };
                let image = found.as_ref().map(|digest| {
                    json!({
                        "registry": reference.registry,
                        "repository": reference.repository,
                        "tag": reference.tag.as_deref().unwrap_or_default(),
                        "digest": digest.as_str(),
                        "pinned": format!("{}/{}@{digest}", reference.registry, reference.repository),
                    })
                });
                Ok(Found::of(image, asked, found.as_ref(), "404, there is none"))
            }
            Self::Layout { layout, .. } => {
                let asked = format!("the manifest of {text} in {}", layout.folder().display());
                let found = layout.digest(&text).await.map_err(|error| unclear(&asked, error))?;
                let tag = text.rsplit_once(':').map_or(text.as_str(), |(_, tag)| tag);
                let image = found.as_ref().map(|digest| json!({ "tag": tag, "digest": digest.as_str() }));
                Ok(Found::of(image, asked, found.as_ref(), "the index names none"))
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
    fn of(image: Option<Value>, asked: String, digest: Option<&Digest>, missing: &str) -> Self {
        let evidence = match digest {
            Some(digest) => Evidence::present(asked, digest.as_str()),
            None => Evidence::absent(asked, missing),
        };
        let parts = |image| if let Value::Object(parts) = image { parts } else { Parameters::new() };
        Self { image: image.map(parts), evidence }
    }
}

/// `error`, with what was asked as evidence.
fn unclear(asked: &str, mut error: BackendError) -> BackendError {
    error.evidence = vec![Evidence::unknown(asked, error.message.as_str())];
    error
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
