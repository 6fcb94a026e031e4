//! Starts one program by `posix_spawn`, for which the kernel copies nothing of the launcher. The texts lie in memory as the
//! kernel takes them.

use std::{
    borrow::Cow,
    ffi::{CStr, CString, OsStr},
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use nix::{
    spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn},
    sys::signal::SigSet,
    unistd::{Pid, chdir, dup2_stderr, dup2_stdin, dup2_stdout},
};

use super::{
    failure::StartFailure,
    wire::{STREAMS, Texts},
};

/// Variables that name the work folder.
const HOMES: [&str; 2] = ["HOME", "TMPDIR"];

/// Space for variables. Most programs have fewer.
const USUAL: usize = 32;

/// The common settings of all programs of a launcher.
#[derive(Debug)]
pub(crate) struct Starter {
    attributes: PosixSpawnAttr,
    homes: [CString; HOMES.len()],
    /// The launcher's own streams, for the time between programs.
    nothing: File,
    stderr: OwnedFd,
}

/// One program to start.
#[derive(Debug)]
pub(crate) struct SpawnCommand<'a> {
    program: Cow<'a, CStr>,
    /// Its name, then its arguments.
    words: Vec<Cow<'a, CStr>>,
    folder: Cow<'a, Path>,
    streams: [OwnedFd; STREAMS],
}

impl Starter {
    /// The starter of the launcher whose work folder is `work`.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn new(work: &Path) -> io::Result<Self> {
        let mut attributes = PosixSpawnAttr::init()?;
        // A process group of its own, and no blocked or ignored signals: the launcher blocks some, and Rust's programs
        // ignore SIGPIPE.
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
        let (nothing, stderr) = (File::open("/dev/null")?, io::stderr().as_fd().try_clone_to_owned()?);
        Ok(Self { attributes, homes: [home?, temporary?], nothing, stderr })
    }

    /// Starts `command` with `environment`, and with [`HOMES`] if they are not set. Its streams replace the launcher's own
    /// meanwhile: as actions of the spawn they could fail unnoticed.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn start(&self, command: &SpawnCommand<'_>, environment: &Texts<'_>) -> Result<Pid, StartFailure> {
        let folder = &command.folder;
        chdir(&**folder).map_err(|error| {
            let error = io::Error::from(error);
            StartFailure { why: format!("{}: {error}", folder.display()), ..error.into() }
        })?;
        let [stdin, stdout, stderr] = &command.streams;
        let started = dup2_stdin(stdin)
            .and_then(|()| dup2_stdout(stdout))
            .and_then(|()| dup2_stderr(stderr))
            .and_then(|()| self.spawn(command, environment));
        let ended = dup2_stdin(&self.nothing)
            .and_then(|()| dup2_stdout(&self.nothing))
            .and_then(|()| dup2_stderr(&self.stderr));
        let pid = started.and_then(|pid| ended.map(|()| pid));
        pid.map_err(|error| io::Error::from(error).into())
    }

    fn spawn(&self, command: &SpawnCommand<'_>, environment: &Texts<'_>) -> nix::Result<Pid> {
        let mut variables = Vec::with_capacity(USUAL);
        variables.extend(environment.iter());
        for (home, name) in self.homes.iter().zip(HOMES) {
            let is_it = |variable: &&CStr| {
                variable.to_bytes().strip_prefix(name.as_bytes()).is_some_and(|after| after.starts_with(b"="))
            };
            if !variables.iter().any(is_it) {
                variables.push(home);
            }
        }
        let actions = PosixSpawnFileActions::init()?;
        posix_spawn(&*command.program, &actions, &self.attributes, &command.words, &variables)
    }
}

impl<'a> SpawnCommand<'a> {
    /// The program in `words`, in `folder`, with these standard streams. `words` are its path, its name or nothing, and its arguments.
    ///
    /// # Errors
    /// When `words` lacks the path or the name.
    pub(crate) fn new(
        words: &'a Texts<'_>,
        folder: Cow<'a, Path>,
        streams: [OwnedFd; STREAMS],
    ) -> Result<Self, String> {
        let mut words = words.iter().map(Cow::Borrowed);
        let (Some(mut program), Some(name)) = (words.next(), words.next()) else {
            return Err("there is no program".to_owned());
        };
        let is_named = !name.is_empty();
        // A program with a name of its own also sees the path of its script as it was written.
        if !is_named && !program.to_bytes().starts_with(b"/") {
            let path = folder.join(OsStr::from_bytes(program.to_bytes())).into_os_string();
            program = CString::new(path.as_bytes()).map_err(|error| error.to_string())?.into();
        }
        let name = if is_named { name } else { program.clone() };
        let words = [name].into_iter().chain(words).collect();
        Ok(Self { program, words, folder, streams })
    }
}
