//! The place where an image is looked up, a registry or an OCI image layout, and the image's name there.

use domain::{error::BackendError, file::base_dir::BaseDir};
use lang::{
    evaluator::Context,
    scope::NameScope,
    template::{Misfit, Template, TemplateError, ValueContext},
};
use oci::{
    Layout, Reference,
    reference::{has_impossible_tag, is_registry},
};

/// Parts of the names of parameters that hold a commit.
const NAMES_OF_COMMITS: [&str; 3] = ["sha", "commit", "revision"];

/// The place where an image is looked up.
#[derive(Debug)]
pub(super) enum ImageSource {
    /// `registry/repository:tag`
    Registry(Template),
    /// `oci:folder:name`. The name is an `org.opencontainers.image.ref.name`.
    Layout { layout: Layout, name: Template },
}

/// Why a text of the configuration is not an image.
#[derive(Debug, thiserror::Error)]
pub(super) enum ImageError {
    /// A layout without a name.
    #[error("an image layout is written `oci:folder:name`")]
    Layout,
    /// A layout whose folder a parameter would choose.
    #[error("the folder of an image layout must be written out, without `{{{{`")]
    Folder,
    /// Not a template.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// No registry, or one that a parameter would choose.
    #[error(
        "an image begins with its registry's host, such as `registry.example.com/org/front:main`, and the host is written out, without `{{{{`"
    )]
    Host,
    /// Not a reference; the text has the reason.
    #[error("{0}")]
    Reference(String),
}

/// Why the parameters make no reference.
pub(super) struct RefusedReference {
    /// The error to report.
    pub error: BackendError,
    /// Whether no image can have such a name, since it is not a valid tag.
    pub(crate) is_impossible: bool,
}

impl ImageSource {
    /// Parses a reference. The registry or folder is written out.
    ///
    /// # Errors
    /// When it is not a valid reference; the text has the reason.
    pub(super) fn parse(image: &str, scope: &NameScope, base: &BaseDir) -> Result<Self, ImageError> {
        if let Some(rest) = image.strip_prefix("oci:") {
            let (folder, name) = rest.split_once(':').ok_or(ImageError::Layout)?;
            if folder.contains("{{") || folder.contains("{%") || folder.is_empty() {
                return Err(ImageError::Folder);
            }
            let name = Template::parse(name, ValueContext::Reference, scope)?;
            return Ok(Self::Layout { layout: Layout::new(base.resolve(folder)), name });
        }
        let template = Template::parse(image, ValueContext::Reference, scope)?;
        let host = template.fixed_prefix().split_once('/').map(|(host, _)| host);
        if !host.is_some_and(is_registry) {
            return Err(ImageError::Host);
        }
        if template.fixed_prefix() == image {
            Reference::parse(image).map_err(ImageError::Reference)?;
        }
        Ok(Self::Registry(template))
    }

    /// The registry and the repository, if no parameter is part of them.
    pub(crate) fn fixed_repository(&self) -> Option<&str> {
        let Self::Registry(template) = self else { return None };
        let prefix = template.fixed_prefix();
        let (_, rest) = prefix.split_once('/')?;
        let end = rest.find([':', '@'])?;
        Some(&prefix[..prefix.len() - rest.len() + end])
    }

    /// Whether a value that does not fit in the reference proves that there is no such image: parameters are in the tag only,
    /// and none of them is a commit, whose value would itself be wrong.
    fn has_names_in_tag_only(&self) -> bool {
        let Self::Registry(template) = self else { return false };
        let is_name_fixed = template.fixed_prefix().split_once('/').is_some_and(|(_, rest)| rest.contains(':'));
        is_name_fixed && !self.has_commit_parameter()
    }

    /// The reference with the values of `context`; for an image layout, the name in it.
    ///
    /// # Errors
    /// When a value is missing or not allowed in a reference.
    pub(super) async fn reference(&self, context: &Context) -> Result<String, RefusedReference> {
        let text = context.render(self.template()).await.map_err(|error| RefusedReference {
            is_impossible: match error.misfit() {
                Some(Misfit::NoTag) => true,
                Some(Misfit::NotInReference) => self.has_names_in_tag_only(),
                None => false,
            },
            error: error.into_backend_error(BackendError::invalid_input),
        })?;
        if matches!(self, Self::Registry(_)) && has_impossible_tag(&text) {
            let error = BackendError::invalid_input(Reference::parse(&text).err().unwrap_or_default());
            return Err(RefusedReference { error, is_impossible: self.has_names_in_tag_only() });
        }
        Ok(text)
    }

    /// Whether it has a parameter whose name looks like that of a commit.
    pub(crate) fn has_commit_parameter(&self) -> bool {
        let is_called_so = |name: &str| NAMES_OF_COMMITS.iter().any(|part| name.to_ascii_lowercase().contains(part));
        self.template().names().any(is_called_so)
    }

    /// The template of the reference, or of the name.
    pub(super) const fn template(&self) -> &Template {
        let (Self::Registry(template) | Self::Layout { name: template, .. }) = self;
        template
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_is_written_out_in_the_configuration() {
        let parse = |image: &str| ImageSource::parse(image, &NameScope::input(), &BaseDir::default());
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
            "r.example/front:{{ commit }}",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let scope = NameScope::input().with_all(&["commit"]);
        assert!(ImageSource::parse("r.example/front:{{ commit }}", &scope, &BaseDir::default()).is_ok());
    }
}
