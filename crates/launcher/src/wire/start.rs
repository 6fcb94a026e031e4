//! A program as a launcher hands it to the kernel.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    ffi::{CStr, OsStr},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// Environment variables and their values. A later variable replaces an earlier one of the same name.
pub type Environment<'a> = Vec<(Cow<'a, str>, Cow<'a, OsStr>)>;

/// A program that runs many times, each time with another environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// An absolute path, or a path inside the copied folder.
    pub path: PathBuf,
    /// The name that it sees as its own, `argv[0]`. Its absolute path unless set.
    pub argv0: Option<String>,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The folder in which it runs. Its work folder unless set.
    pub folder: Option<PathBuf>,
    /// A program that runs before it, with the same environment and in the same folder. The program runs only if that one succeeds.
    pub first: Option<First>,
    /// A folder that is copied into its work folder. The program then runs in the copy.
    pub copy: Option<Copied>,
}

/// A program that runs before another. Its stdout goes to stderr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct First {
    /// An absolute path, or a path inside the copied folder.
    pub path: PathBuf,
    /// The name that it sees as its own, as [`Program::argv0`].
    pub argv0: Option<String>,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// A folder to copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// The folder to copy.
    pub from: PathBuf,
    /// The most bytes that all its files together may hold.
    pub max_bytes: u64,
    /// The most files, folders and links in it.
    pub max_files: usize,
    /// The folder within the copy in which the program runs. Empty for the copy itself. It has no `..` and is not absolute.
    pub inside: PathBuf,
    /// Whether the folder never changes, so that a copy which its program left unchanged may serve the next one.
    pub is_fixed: bool,
}

/// A [`Program`] as a launcher hands it to the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start<'a> {
    /// The program's path, its name or nothing, then its arguments.
    #[serde(borrow)]
    pub command: Texts<'a>,
    /// The same of the program that runs before it.
    pub first: Option<Texts<'a>>,
    /// `NAME=value` each.
    pub environment: Texts<'a>,
    /// The folder in which it runs: one path, or none.
    pub folder: Texts<'a>,
    /// The folder that is copied into its work folder.
    pub copy: Option<Copied>,
    /// Whether its work folder is left as it is.
    pub is_handed_over: bool,
}

/// A sequence of texts. Each ends with a zero byte, as the kernel wants it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Texts<'a>(#[serde(borrow)] Cow<'a, [u8]>);

impl Serialize for Texts<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl Program {
    /// This program with its whole environment. The launcher adds `HOME` and `TMPDIR`, which name the work folder, unless
    /// they are set.
    ///
    /// # Errors
    /// When a text holds a zero byte: the kernel cannot take it.
    pub fn start(&self, environment: &Environment<'_>) -> io::Result<Start<'static>> {
        let mut folder = Texts::default();
        if let Some(path) = &self.folder {
            folder.push(&[path.as_os_str()])?;
        }
        let first = self.first.as_ref();
        let first = first.map(|first| command(&first.path, first.argv0.as_deref(), &first.arguments)).transpose()?;
        Ok(Start {
            command: command(&self.path, self.argv0.as_deref(), &self.arguments)?,
            first,
            environment: variables(environment)?,
            folder,
            copy: self.copy.clone(),
            is_handed_over: false,
        })
    }
}

/// A program's path, its name or nothing, and its arguments.
fn command(path: &Path, argv0: Option<&str>, arguments: &[String]) -> io::Result<Texts<'static>> {
    let mut texts = Texts::default();
    texts.push(&[path.as_os_str()])?;
    texts.push(&[argv0.unwrap_or_default().as_ref()])?;
    for argument in arguments {
        texts.push(&[argument.as_ref()])?;
    }
    Ok(texts)
}

/// `NAME=value` for each variable.
fn variables(environment: &Environment<'_>) -> io::Result<Texts<'static>> {
    let size = environment.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    let mut texts = Texts(Vec::with_capacity(size).into());
    let unique: BTreeMap<&str, &OsStr> = environment.iter().map(|(name, value)| (&**name, &**value)).collect();
    for (name, value) in unique {
        texts.push(&[name.as_ref(), "=".as_ref(), value])?;
    }
    Ok(texts)
}

impl Texts<'_> {
    /// Adds one text, made of `parts`.
    fn push(&mut self, parts: &[&OsStr]) -> io::Result<()> {
        let bytes = self.0.to_mut();
        for part in parts {
            if part.as_bytes().contains(&0) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "its arguments or variables contain a zero byte",
                ));
            }
            bytes.extend_from_slice(part.as_bytes());
        }
        bytes.push(0);
        Ok(())
    }

    /// All texts.
    pub fn iter(&self) -> impl Iterator<Item = &CStr> {
        self.0.split_inclusive(|byte| *byte == 0).filter_map(|text| CStr::from_bytes_with_nul(text).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_byte_is_refused() {
        let program = Program {
            path: "/bin/x".into(),
            argv0: None,
            arguments: Vec::new(),
            folder: None,
            first: None,
            copy: None,
        };
        let environment = vec![("A".into(), OsStr::new("1\0B=2").into())];
        assert!(program.start(&environment).unwrap_err().to_string().contains("zero byte"));
    }
}
