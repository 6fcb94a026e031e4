//! `format` and `contentType`: the documents that an API sends, and the content types that are accepted as such.

mod xml;

use std::fmt;

use bytes::Bytes;
use http::{HeaderValue, header};
use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer,
    de::{self, SeqAccess, Visitor},
};
use serde_json::Value;

use crate::Building;
use domain::{document::yaml, error::BackendError};
use outbound::Reply;

/// The format of an API's documents. A document in any other format than JSON is read as the JSON of the same values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Format {
    /// One JSON document.
    #[default]
    Json,
    /// One YAML document, as strictly as a script's: no repeated keys, no merge keys, no custom tags.
    Yaml,
    /// A text: `body` is all of it. `body.split('\n')` are its lines.
    Text,
    /// An XML document without a DTD: `body.root.element`, attributes by `@name`, text beside them as `#text`.
    Xml,
}

/// `any`, or the content types that are accepted.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(rename = "ContentTypes")]
#[serde(untagged)]
pub(crate) enum ContentTypes {
    /// Any content type, also none.
    Any(AnyContentType),
    /// These, such as `text/plain` and `text/*`.
    Listed(Vec<String>),
}

/// The word `any`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum AnyContentType {
    /// Any content type.
    Any,
}

impl<'de> Deserialize<'de> for ContentTypes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = ContentTypes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`any`, or a list of content types such as `[text/plain]`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                match text {
                    "any" => Ok(ContentTypes::Any(AnyContentType::Any)),
                    other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut listed = Vec::new();
                while let Some(one) = list.next_element()? {
                    listed.push(one);
                }
                Ok(ContentTypes::Listed(listed))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// How documents are read.
#[derive(Debug, Clone)]
pub(super) struct Documents {
    format: Format,
    /// `None`: those of the format.
    types: Option<ContentTypes>,
    /// The paths of XML elements that are always lists.
    lists: Vec<String>,
}

impl Documents {
    /// Checks the values of `format`, `contentType` and `xmlLists`. `building` is that of the backend.
    pub(super) fn build(
        format: Format,
        types: Option<&ContentTypes>,
        lists: &[String],
        building: &mut Building<'_>,
    ) -> Self {
        if let Some(ContentTypes::Listed(listed)) = types {
            let mut at = building.key("contentType");
            if listed.is_empty() {
                at.error_with_help("no reply has one of no content types", "list them, or write `any`");
            }
            for (index, wrong) in listed.iter().enumerate().filter(|(_, one)| !is_content_type(one)) {
                let help = "write it as in the header, without parameters, such as `text/plain` or `text/*`";
                at.index(index).error_with_help(format!("`{wrong}` is not a content type"), help);
            }
        }
        let mut at = building.key("xmlLists");
        if !lists.is_empty() && format != Format::Xml {
            at.error_with_help("it goes with `format: xml` only", "leave it out");
        }
        for (index, wrong) in lists.iter().enumerate().filter(|(_, path)| !is_path(path)) {
            let help = "write the names of the elements from the root on, such as `ListBucketResult/Contents`";
            at.index(index).error_with_help(format!("`{wrong}` is not a path of elements"), help);
        }
        Self { format, types: types.cloned(), lists: lists.to_vec() }
    }

    /// The header `Accept`.
    pub(super) const fn accept(&self) -> HeaderValue {
        HeaderValue::from_static(match self.format {
            Format::Json => "application/json",
            Format::Yaml => "application/yaml, application/x-yaml, text/yaml, text/plain;q=0.9, */*;q=0.8",
            Format::Text => "text/plain, */*;q=0.8",
            Format::Xml => "application/xml, text/xml, */*;q=0.8",
        })
    }

    /// Checks that the content type of `reply` is accepted.
    ///
    /// # Errors
    /// When it is not. The error names it.
    pub(super) fn check_type(&self, reply: &Reply) -> Result<(), BackendError> {
        let essence = essence_of(reply);
        let is_accepted = match (&self.types, self.format) {
            (Some(ContentTypes::Any(_)), _) => true,
            (Some(ContentTypes::Listed(listed)), _) => listed.iter().any(|accepted| matches(accepted, &essence)),
            (None, Format::Json) => return reply.check_json(),
            (None, Format::Yaml) => is_yaml(&essence) || reply.check_json().is_ok(),
            // A page to sign in is HTML.
            (None, Format::Text) => essence.starts_with("text/") && essence != "text/html",
            (None, Format::Xml) => is_xml(&essence),
        };
        if is_accepted {
            return Ok(());
        }
        let shown = reply.secrets.excerpt(essence.as_bytes(), 80);
        Err(BackendError::invalid_output(format!(
            "the content type is `{shown}`, which is not accepted (`contentType`): {}",
            reply.excerpt(200)
        )))
    }

    /// The document as JSON.
    ///
    /// # Errors
    /// When it is not one document in this format, or not UTF-8. JSON itself is read later.
    pub(super) fn to_json(&self, reply: &Reply) -> Result<Bytes, BackendError> {
        if self.format == Format::Json {
            return Ok(reply.body.clone());
        }
        let invalid = |what: &str, why: &str| {
            BackendError::invalid_output(format!("{what}: {why} (it begins with `{}`)", reply.excerpt(120)))
        };
        let text = text_of(reply).map_err(|why| invalid("its encoding cannot be read", &why))?;
        let value = match self.format {
            Format::Json | Format::Text => Value::from(text),
            Format::Yaml => {
                let document = yaml::parse_one(text.as_bytes());
                document.map_err(|error| invalid("not one YAML document", &error.to_string()))?
            }
            Format::Xml => {
                xml::parse(text, &self.lists).map_err(|error| invalid("not an XML document", &error.to_string()))?
            }
        };
        Ok(Bytes::from(value.to_string()))
    }
}

/// The content type of `reply`, without its parameters.
fn essence_of(reply: &Reply) -> String {
    let content_type = reply.headers.get(header::CONTENT_TYPE).map_or_else(Default::default, HeaderValue::as_bytes);
    String::from_utf8_lossy(content_type).split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The body as text, without a byte order mark.
fn text_of(reply: &Reply) -> Result<&str, String> {
    let content_type = reply.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let parameters = content_type.into_iter().flat_map(|value| value.split(';').skip(1));
    let charset = parameters
        .filter_map(|parameter| parameter.trim().split_once('='))
        .find_map(|(name, value)| name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"')));
    if let Some(other) = charset.filter(|charset| !is_utf8(charset)) {
        let shown = reply.secrets.excerpt(other.as_bytes(), 40);
        return Err(format!("its `Content-Type` names the charset `{shown}`, and only UTF-8 is read"));
    }
    let text = std::str::from_utf8(&reply.body);
    let text = text.map_err(|error| format!("it is not UTF-8 from byte {} on", error.valid_up_to()))?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// Whether an encoding of this name is UTF-8, or a part of it.
fn is_utf8(name: &str) -> bool {
    ["utf-8", "utf8", "us-ascii", "ascii"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

fn is_yaml(essence: &str) -> bool {
    ["application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml", "text/vnd.yaml"].contains(&essence)
        || essence.ends_with("+yaml")
}

fn is_xml(essence: &str) -> bool {
    ["application/xml", "text/xml"].contains(&essence) || (essence.ends_with("+xml") && !essence.contains("xhtml"))
}

/// Whether `accepted`, a content type or a `type/*`, is that of a reply.
fn matches(accepted: &str, essence: &str) -> bool {
    match accepted.strip_suffix('*') {
        Some(beginning) => essence.get(..beginning.len()).is_some_and(|of| of.eq_ignore_ascii_case(beginning)),
        None => accepted.eq_ignore_ascii_case(essence),
    }
}

fn is_content_type(text: &str) -> bool {
    let is_token =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "+-._".contains(c));
    text.split_once('/').is_some_and(|(kind, of)| is_token(kind) && (of == "*" || is_token(of)))
}

/// Whether `path` leads from a root element to another one.
fn is_path(path: &str) -> bool {
    path.contains('/') && path.split('/').all(|name| !name.is_empty() && !name.contains(char::is_whitespace))
}

#[cfg(test)]
mod tests;
