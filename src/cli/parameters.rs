//! Input parameters and headers on the command line.

use anyhow::{Context, bail};
use clap::Args;
use http::{HeaderName, HeaderValue};
use serde_json::Value;

use domain::{document, generator::Parameters};
use engine::cache::{KeyStart, KeyStartError};

/// Input parameters: each with `-p`, or all as one JSON object.
#[derive(Debug, Args)]
pub(crate) struct ParameterArgs {
    /// A parameter with a text value; may be used several times.
    #[arg(long = "param", short, value_name = "NAME=VALUE", value_parser = parse_parameter)]
    parameters: Vec<(String, String)>,
    /// Parameters as a JSON object; `-p` overrides them.
    #[arg(long, value_name = "OBJECT")]
    json: Option<String>,
}

/// An ApplicationSet's query to a route.
#[derive(Debug, Args)]
pub(crate) struct QuestionArgs {
    #[command(flatten)]
    pub(super) parameters: ParameterArgs,
    /// The ApplicationSet that asks: a name, or a namespace and a name with a `/` between them.
    #[arg(long, short, value_name = "NAME", default_value = "")]
    pub(super) application_set: String,
}

impl QuestionArgs {
    /// The namespace of the ApplicationSet that asks, if there is one, and its name.
    pub(crate) fn requester(&self) -> (Option<&str>, &str) {
        match self.application_set.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, &self.application_set),
        }
    }
}

/// Reads the id of an answer, or the beginning of it. An empty one names nothing.
pub(super) fn parse_id(text: &str) -> Result<String, KeyStartError> {
    KeyStart::parse(text).map(|_| text.to_owned())
}

fn parse_parameter(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Reads a header: `Name: value`.
pub(super) fn parse_header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("a header is `Name: value`")?;
    let name = name.trim().parse().map_err(|_| format!("`{name}` is not the name of a header"))?;
    Ok((name, value.trim().parse().map_err(|_| "its value has characters that no header can carry")?))
}

impl ParameterArgs {
    /// The parameters.
    ///
    /// # Errors
    /// When `--json` is not an object.
    pub(crate) fn read(&self) -> anyhow::Result<Parameters> {
        let mut parameters = match &self.json {
            Some(text) => match document::parse(text.as_bytes()).map_err(anyhow::Error::msg).context("--json")? {
                Value::Object(map) => map,
                other => bail!("--json must be an object, not {}", document::kind_of(&other)),
            },
            None => Parameters::new(),
        };
        parameters.extend(self.parameters.iter().map(|(name, value)| (name.clone(), value.clone().into())));
        Ok(parameters)
    }
}
