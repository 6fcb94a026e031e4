//! The start of one program by a launcher: by `posix_spawn`, for which the kernel copies nothing of the launcher, and with
//! texts that lie as the kernel takes them.

use std::{
    borrow::Cow,
    ffi::{CStr, CString, OsStr},
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use nix::{
    spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn},
    sys::signal::SigSet,
    unistd::Pid,
};

use super::wire::{STREAMS, Texts};

/// Variables that name the work folder.
const HOMES: [&str; 2] = ["HOME", "TMPDIR"];

/// Most programs are given fewer variables.
const USUAL: usize = 32;

/// What all programs of a launcher are started with.
#[derive(Debug)]
pub struct Starter {
    attributes: PosixSpawnAttr,
    homes: [CString; HOMES.len()],
}

/// One program to start, from the launcher's own current folder.
#[derive(Debug)]
pub struct Command<'a> {
    words: Vec<Cow<'a, CStr>>,
    streams: [OwnedFd; STREAMS],
}

impl Starter {
    /// The one of the launcher whose folder is `work`.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(work: &Path) -> io::Result<Self> {
        let mut attributes = PosixSpawnAttr::init()?;
        // A group of its own, and no signal blocked or ignored: the launcher blocks some, and Rust's programs ignore SIGPIPE.
        attributes.set_flags(
            PosixSpawnFlags::POSIX_SPAWN_SETPGROUP
                | PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK
                | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF,
        )?;
        attributes.set_pgroup(Pid::from_raw(0))?;
        attributes.set_sigmask(&SigSet::empty())?;
        attributes.set_sigdefault(&SigSet::all())?;
        let [home, temporary] =
            HOMES.map(|name| CString::new([name.as_bytes(), b"=", work.as_os_str().as_bytes()].concat()));
        Ok(Self { attributes, homes: [home?, temporary?] })
    }

    /// Starts `command` with `environment`, and with [`HOMES`] where that does not set them.
    ///
    /// # Errors
    /// Those of the system.
    pub fn start(&self, command: &Command<'_>, environment: &Texts<'_>) -> io::Result<Pid> {
        let mut actions = PosixSpawnFileActions::init()?;
        for (stream, number) in command.streams.iter().zip(0..) {
            actions.add_dup2(stream.as_raw_fd(), number)?;
        }
        let mut variables = Vec::with_capacity(USUAL);
        variables.extend(environment.iter());
        for (home, name) in self.homes.iter().zip(HOMES) {
            let is_it = |variable: &&CStr| {
                variable.to_bytes().strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
            };
            if !variables.iter().any(is_it) {
                variables.push(home);
            }
        }
        Ok(posix_spawn(&*command.words[0], &actions, &self.attributes, &command.words, &variables)?)
    }
}

impl<'a> Command<'a> {
    /// The program and arguments that are `words`, with these standard streams. A relative path is one in `folder`.
    ///
    /// # Errors
    /// When there is no program.
    pub fn new(words: &'a Texts<'_>, folder: &Path, streams: [OwnedFd; STREAMS]) -> Result<Self, String> {
        let mut words: Vec<Cow<'a, CStr>> = words.iter().map(Cow::Borrowed).collect();
        let program = words.first_mut().ok_or_else(|| "there is no program".to_owned())?;
        if !program.to_bytes().starts_with(b"/") {
            let path = folder.join(OsStr::from_bytes(program.to_bytes())).into_os_string();
            *program = CString::new(path.as_bytes()).map_err(|error| error.to_string())?.into();
        }
        Ok(Self { words, streams })
    }
}
