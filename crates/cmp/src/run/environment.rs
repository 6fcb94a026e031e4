//! The variables of a run: those of this process, then those of the call.

use std::{
    ffi::{OsStr, OsString},
    fmt,
};

use crate::{
    askpass::{AskpassSocket, Received},
    grpc::{message::EnvEntry, status::Status},
};
use domain::secret::{
    Secret, Secrets,
    names::{is_value, named},
};
use launcher::Environment;

/// The longest variable, name and value, in bytes (Linux's `MAX_ARG_STRLEN`, without the zero byte).
const MAX_VARIABLE: usize = 128 * 1024 - 1;
/// Every run has a folder of its own for temporary files.
const TEMPORARY: &str = "TMPDIR";

/// The variables of a run, and the secrets among them.
#[derive(Clone)]
pub(crate) struct RunEnvironment {
    /// A later one replaces an earlier one of the same name.
    variables: Vec<(String, OsString)>,
    secrets: Secrets,
    /// Those that a run gets after its start.
    received: Received,
}

/// Shows no value.
impl fmt::Debug for RunEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.variables.iter().map(|(name, _)| name)).finish()
    }
}

impl RunEnvironment {
    /// The variables of this process that a plugin gets: all, or those with the `inherited` names.
    pub(crate) fn of_process(inherited: Option<&[String]>) -> Self {
        let mut environment =
            Self { variables: Vec::new(), secrets: Secrets::default(), received: Received::default() };
        for (name, value) in std::env::vars_os() {
            let Ok(name) = name.into_string() else { continue };
            if let Some(value) = value.to_str() {
                // No message repeats a secret of this process, whether the plugin gets it or not.
                environment.note(&name, value);
            }
            if name != TEMPORARY && inherited.is_none_or(|names| names.contains(&name)) {
                environment.variables.push((name, value));
            }
        }
        environment
    }

    /// These variables, and those of a call.
    ///
    /// # Errors
    /// When the kernel would refuse a variable.
    pub(crate) fn with(&self, entries: Vec<EnvEntry>) -> Result<Self, Status> {
        let mut environment = self.clone();
        for EnvEntry { name, value } in entries {
            if name.is_empty() {
                continue;
            }
            let refused =
                |why: &str| Err(Status::unknown(format!("the variable `{}` {why}", domain::visible::one_line(&name))));
            if name.contains(['\0', '=']) || value.contains('\0') {
                return refused("contains a zero byte, or a `=` in its name");
            }
            if name.len() + value.len() + 1 > MAX_VARIABLE {
                return refused("is longer than 128 KiB, the most that Linux takes");
            }
            environment.note(&name, &value);
            environment.variables.push((name, value.into()));
        }
        Ok(environment)
    }

    /// These variables, and those by which git asks `socket`.
    pub(crate) fn with_askpass(mut self, socket: &AskpassSocket) -> Self {
        let program = std::env::current_exe().unwrap_or_else(|_| launcher::own_program().to_owned());
        for (name, value) in socket.variables(&program) {
            self.note(name, &value);
            self.variables.push((name.to_owned(), value.into()));
        }
        self.received = socket.received();
        self
    }

    /// The last value of `name`, if it is text.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.last(name)?.to_str()
    }

    /// Where programs are.
    pub(super) fn path(&self) -> &OsStr {
        self.last("PATH").unwrap_or_default()
    }

    /// The secrets that no message may repeat.
    pub(crate) fn secrets(&self) -> Secrets {
        let mut secrets = self.secrets.clone();
        for secret in self.received.lock().iter() {
            secrets.push(secret.clone());
        }
        secrets
    }

    /// As a launcher takes them.
    pub(super) fn variables(&self) -> Environment<'_> {
        self.variables.iter().map(|(name, value)| (name.as_str().into(), value.as_os_str().into())).collect()
    }

    fn last(&self, name: &str) -> Option<&OsStr> {
        self.variables.iter().rfind(|(other, _)| other == name).map(|(_, value)| value.as_os_str())
    }

    fn note(&mut self, name: &str, value: &str) {
        if named(name).is_some_and(|named| is_value(named, value)) {
            self.secrets.push(Secret::from(value.to_owned()));
        }
    }
}
