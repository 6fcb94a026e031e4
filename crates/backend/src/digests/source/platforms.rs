//! Which platforms are wanted of an image, and which of its images is for each.
//!
//! An index may leave a platform to the configuration of its image, and may hold other indexes. Nothing is taken for missing before all of them
//! are read.

use std::collections::{BTreeSet, VecDeque};

use crate::{
    Building,
    digests::{found::unclear, source::ImageLookup},
};
use domain::error::BackendError;
use lang::{evaluator::Context, template::Template};
use oci::{Contents, Digest, MAX_DEPTH, Platform, Reference};

/// The most images and indexes that are opened for the platforms of one tag.
const MAX_OPENED: usize = 32;

/// A platform as the configuration has it.
#[derive(Debug)]
pub(super) enum PlatformSource {
    /// It is written out.
    Fixed(Wanted),
    /// It depends on the call.
    Template(Template),
}

/// A platform that is wanted.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// As it was written.
    pub(super) text: String,
    platform: Platform,
}

impl Wanted {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(Self { text: text.to_owned(), platform: text.parse()? })
    }
}

impl PlatformSource {
    /// Parses a platform, or a template of one.
    pub(super) fn build(text: &str, building: &mut Building<'_>) -> Option<Self> {
        let template = building.template(text)?;
        if template.fixed_prefix() == text {
            return building.note(Wanted::parse(text)).map(Self::Fixed);
        }
        Some(Self::Template(template))
    }

    /// The platform with the values of `context`.
    ///
    /// # Errors
    /// When a value is missing, or the result is not a platform.
    pub(super) async fn render(&self, key: &str, context: &Context) -> Result<Wanted, BackendError> {
        match self {
            Self::Fixed(wanted) => Ok(wanted.clone()),
            Self::Template(template) => {
                let text = context.render(template).await;
                let wanted = text.and_then(|text| Ok(Wanted::parse(&text)?));
                let wanted = wanted.map_err(|error| error.within(key).into_backend_error(BackendError::invalid_input));
                wanted.map_err(|error| unclear("its platform", error))
            }
        }
    }
}

/// The images under one tag.
#[derive(Debug, Default)]
pub(super) struct Images {
    /// Their platforms, and their digests if they are in an index.
    all: Vec<(Platform, Option<Digest>)>,
}

impl Images {
    /// The images of `top`, the contents of `reference`, as far as they are needed to find those that are `wanted`.
    ///
    /// # Errors
    /// When an image that may be wanted cannot be read, or does not name its platform.
    pub(super) async fn find(
        top: &Contents,
        wanted: &[&Wanted],
        reference: &Reference,
        lookup: &ImageLookup<'_>,
    ) -> Result<Self, BackendError> {
        let mut images = Self::default();
        let unknown = |why: String| unclear("its platforms", BackendError::invalid_output(why));
        if wanted.is_empty() {
            return Ok(images);
        }
        if top.is_single() {
            images.all.extend(top.platforms.iter().map(|platform| (platform.clone(), None)));
            return if images.all.is_empty() {
                Err(unknown("it does not name its platform".to_owned()))
            } else {
                Ok(images)
            };
        }
        images.add(top);
        let (mut seen, mut nameless) = (BTreeSet::new(), None);
        let within = |contents: &Contents, depth| {
            contents.unplaced.clone().into_iter().flatten().map(move |digest| (digest, depth))
        };
        let mut queue: VecDeque<(Digest, usize)> = within(top, 1).collect();
        while !wanted.iter().all(|wanted| images.has_exactly(wanted))
            && let Some((digest, depth)) = queue.pop_front()
        {
            if !seen.insert(digest.clone()) {
                continue;
            }
            if seen.len() > MAX_OPENED || depth > MAX_DEPTH {
                return Err(unknown(format!(
                    "its index has more than {MAX_OPENED} images without a platform, or indexes that lie more than {MAX_DEPTH} deep"
                )));
            }
            let contents = lookup.contents(reference, &digest).await?;
            images.add(&contents);
            queue.extend(within(&contents, depth + 1));
            if contents.is_single() {
                images.all.extend(contents.platforms.iter().map(|platform| (platform.clone(), Some(digest.clone()))));
                if contents.platforms.is_empty() && !contents.is_artifact() {
                    nameless = Some(digest);
                }
            }
        }
        match nameless {
            Some(digest) if !wanted.iter().all(|wanted| images.has(wanted)) => {
                Err(unknown(format!("the image {digest} of its index does not name its platform")))
            }
            _ => Ok(images),
        }
    }

    /// Whether one of them is for `wanted`.
    pub(super) fn has(&self, wanted: &Wanted) -> bool {
        self.best(wanted).is_some()
    }

    /// The digest of the image for `wanted`. `None` if it is not in an index, or there is none.
    pub(super) fn digest(&self, wanted: &Wanted) -> Option<Digest> {
        self.best(wanted).and_then(|(_, digest)| digest.clone())
    }

    fn add(&mut self, index: &Contents) {
        self.all.extend(index.images.iter().map(|(platform, digest)| (platform.clone(), Some(digest.clone()))));
    }

    fn has_exactly(&self, wanted: &Wanted) -> bool {
        self.all.iter().any(|(own, _)| own.rank(&wanted.platform) == Some(0))
    }

    /// The image of the best rank; of several, the first.
    fn best(&self, wanted: &Wanted) -> Option<&(Platform, Option<Digest>)> {
        let ranked = self.all.iter().filter_map(|image| Some((image.0.rank(&wanted.platform)?, image)));
        ranked.min_by_key(|(rank, _)| *rank).map(|(_, image)| image)
    }
}
