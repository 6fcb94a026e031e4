//! `appset-gateway init`: writes a small configuration with a test case, from the answers to three questions, or a recipe of the
//! gallery.

mod files;
mod recipes;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, ValueEnum};

use self::{files::NewText, recipes::Recipe};
use super::{check, new_token, print};
use auth::hash_token;
use domain::{file::base_dir::BaseDir, secret::SecretRef};

/// The answers. Missing ones are read from standard input.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  appset-gateway init
  appset-gateway init --source digests --token new --application-set 'previews*' --to previews
  appset-gateway init --list
  appset-gateway init github-pull-requests --token new --to previews

A recipe is a configuration with its test cases and its ApplicationSet; docs/gallery explains each. A missing answer is read from
standard input. All files are written, or none, and no file is overwritten. A token in a file or in the environment need not be there
yet: what is written is checked as `appset-gateway check --strict --no-secrets` does.")]
pub(crate) struct InitArgs {
    /// Write this recipe of the gallery, such as `netbox`; `--list` lists them.
    #[arg(value_parser = recipes::parser(), hide_possible_values = true, conflicts_with_all = ["source", "application_set"])]
    recipe: Option<String>,
    /// List the recipes, each with what it generates from, and write nothing.
    #[arg(long, exclusive = true)]
    list: bool,
    /// Where the parameter sets come from.
    #[arg(long, value_enum)]
    source: Option<Source>,
    /// The token that Argo CD sends: `new` makes one and shows it once, `file:PATH` (below the folder of `--to`) and `env:NAME` say where it is.
    #[arg(long, value_name = "WHERE", value_parser = parse_token)]
    token: Option<Token>,
    /// The name of the ApplicationSet that may ask; `*` stands for any text.
    #[arg(long, value_name = "PATTERN", value_parser = parse_pattern)]
    application_set: Option<String>,
    /// The folder for the files.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    to: PathBuf,
}

/// A kind of source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Source {
    /// A list in the configuration.
    Fixed,
    /// A program that prints a list.
    Script,
    /// A JSON API.
    Http,
    /// A plugin server that runs already.
    Plugin,
    /// An image registry.
    Digests,
}

/// Where the token is that Argo CD sends.
#[derive(Debug, Clone)]
enum Token {
    /// It is made now.
    New,
    /// In a file.
    File(String),
    /// In a variable of the environment.
    Env(String),
}

fn parse_token(text: &str) -> Result<Token, String> {
    match text.split_once(':') {
        None if text == "new" => Ok(Token::New),
        Some(("file", path)) if !path.is_empty() => Ok(Token::File(path.to_owned())),
        Some(("env", name)) if !name.is_empty() => Ok(Token::Env(name.to_owned())),
        _ => Err("write `new`, `file:PATH` or `env:NAME`".to_owned()),
    }
}

impl Source {
    /// The route, the case, and the programs that belong to it.
    const fn files(self) -> (&'static str, &'static str, Option<(&'static str, &'static str)>) {
        let script = ("apps.sh", include_str!("init/apps.sh"));
        match self {
            Self::Fixed => (include_str!("init/fixed.yaml"), include_str!("init/fixed.test.yaml"), None),
            Self::Script => (include_str!("init/script.yaml"), include_str!("init/script.test.yaml"), Some(script)),
            Self::Http => (include_str!("init/http.yaml"), include_str!("init/http.test.yaml"), None),
            Self::Plugin => (include_str!("init/plugin.yaml"), include_str!("init/plugin.test.yaml"), None),
            Self::Digests => (include_str!("init/digests.yaml"), include_str!("init/digests.test.yaml"), None),
        }
    }

    /// The files of a configuration that answers `application_set`, with `entry` as the caller's token.
    fn new_files(self, entry: &str, application_set: &str) -> Vec<NewText> {
        let (route, case, program) = self.files();
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let caller = quoted(&application_set.replace('*', "example"));
        let route = route.replace("{APPLICATION_SET}", &quoted(application_set));
        let config = include_str!("init/gateway.yaml").replace("{TOKEN}", entry) + &route;
        let case = case.replace("{CALLER}", &caller);
        let mut files = vec![
            NewText { name: "gateway.yaml", text: config, mode: 0o666 },
            NewText { name: "tests/gateway.yaml", text: case, mode: 0o666 },
        ];
        files.extend(program.map(|(name, text)| NewText { name, text: text.to_owned(), mode: 0o777 }));
        files
    }
}

/// Asks for the missing answers, and writes the files.
pub(crate) fn run(arguments: &InitArgs) -> anyhow::Result<ExitCode> {
    if arguments.list {
        return print(&recipes::list());
    }
    if let Some(recipe) = arguments.recipe.as_deref().and_then(Recipe::named) {
        let token = token(arguments)?;
        return write(arguments, &token, &recipe.secrets(), |entry| recipe.files(entry));
    }
    let source = match arguments.source {
        Some(source) => source,
        None => {
            ask("Where do the parameter sets come from: fixed, script, http, plugin or digests?", "fixed", |text| {
                Source::from_str(text, true)
            })?
        }
    };
    let token = token(arguments)?;
    let application_set = match &arguments.application_set {
        Some(name) => name.clone(),
        None => ask("The name of the ApplicationSet that may ask (`*` stands for any text)?", "*", parse_pattern)?,
    };
    write(arguments, &token, &[], |entry| source.new_files(entry, &application_set))
}

/// The token that Argo CD sends.
fn token(arguments: &InitArgs) -> anyhow::Result<Token> {
    match &arguments.token {
        Some(token) => Ok(token.clone()),
        None => ask("The token that Argo CD sends: new, file:PATH or env:NAME?", "new", parse_token),
    }
}

/// Writes the files that `of_entry` makes of the token's entry, and checks the configuration. `secrets` are files that the user adds.
fn write(
    arguments: &InitArgs,
    token: &Token,
    secrets: &[&str],
    of_entry: impl FnOnce(&str) -> Vec<NewText>,
) -> anyhow::Result<ExitCode> {
    let (entry, made) = entry(token)?;
    let files = of_entry(&entry);
    files::write(&arguments.to, &files)?;

    let file = arguments.to.join("gateway.yaml");
    let shown = file.display();
    if let Some(token) = made {
        print(&format!(
            "token: {token}\nIt is shown this once. Put it into the Secret that Argo CD's ConfigMap names.\n"
        ))?;
    }
    let others: Vec<&str> = files.iter().map(|file| file.name).filter(|name| *name != "gateway.yaml").collect();
    print(&format!(
        "wrote {shown}, and beside it {}. Next:\n  appset-gateway test -c {shown}\n  appset-gateway serve -c {shown}\n",
        others.join(", ")
    ))?;
    if !secrets.is_empty() {
        print(&format!("`serve` needs your own files beside it: {}\n", secrets.join(", ")))?;
    }
    // A token that is not there yet is not a mistake in the files.
    if let Some(why) = missing(token, &BaseDir::of_file(&file)) {
        eprintln!("note: the token must be there before the gateway starts: {why}");
    }
    check::run(&file, check::CheckOptions::strict_without_secrets())
}

/// Why the token cannot be read now.
fn missing(token: &Token, base: &BaseDir) -> Option<String> {
    let reference = match token {
        Token::New => return None,
        Token::File(path) => SecretRef::File(path.into()),
        Token::Env(name) => SecretRef::Env(name.clone()),
    };
    reference.read(base).err().map(String::from)
}

/// The pattern, if an example of it is easily made.
fn parse_pattern(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(['?', '[', ']', '{', '}', '!', '\\']) {
        return Err("write a name, in which `*` stands for any text".to_owned());
    }
    Ok(text.to_owned())
}

/// Asks on standard input until `parse` takes the answer. An empty answer is `usual`.
fn ask<T>(question: &str, usual: &str, parse: impl Fn(&str) -> Result<T, String>) -> anyhow::Result<T> {
    loop {
        eprint!("{question} [{usual}] ");
        let mut line = String::new();
        let is_end = std::io::stdin().read_line(&mut line)? == 0;
        let answer = if line.trim().is_empty() { usual } else { line.trim() };
        match parse(answer) {
            Ok(answer) => return Ok(answer),
            Err(why) if is_end => anyhow::bail!(why),
            Err(why) => eprintln!("{why}"),
        }
    }
}

/// The key of the token's entry, and the token if it was made now.
fn entry(token: &Token) -> anyhow::Result<(String, Option<String>)> {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    Ok(match token {
        Token::File(path) => (format!("file: {}", quoted(path)), None),
        Token::Env(name) => (format!("env: {}", quoted(name)), None),
        Token::New => {
            let token = new_token()?;
            (format!("sha256: {}", hash_token(&token)), Some(token))
        }
    })
}
