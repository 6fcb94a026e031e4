//! The launcher process: it gives up the rights that programs must not have, then starts one program after the other and leaves
//! nothing of any of them behind. It ends when the gateway does.

use std::{
    borrow::Cow,
    ffi::{CStr, OsStr},
    fs::File,
    io::ErrorKind,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{ffi::OsStrExt, net::UnixStream},
    },
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant, SystemTime},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        resource::{Usage, UsageWho, getrusage},
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
        stat::fstat,
        time::TimeValLike,
    },
    unistd::{Pid, chdir},
};

use super::{
    Opening,
    confine::confine,
    copy, emptying,
    failure::StartFailure,
    folder::Work,
    host::EMPTYING,
    open_files,
    reuse::Unchanged,
    starter::{SpawnCommand, Starter},
    supervisor::supervise,
    terms::LaunchOptions,
    tree::{ProcessTree, Reaped, is_held, reap, reap_all},
    wire::{self, Copied, Ended, ExitKind, Fate, Inbox, LauncherReport, LauncherRequest, STREAMS, Start},
};

/// How long descendants may live on after their program: they may still write the end of the output.
const AFTERLIFE: Duration = Duration::from_millis(250);
/// The copy of a folder, in the work folder.
const COPY: &CStr = c"copy";
/// How many processes are reaped before anything else is done.
const MAX_AT_ONCE: usize = 1000;
/// How long a launcher empties its folder itself, under landlock. After that a process without landlock does it, much faster.
const OWN_EMPTYING: Duration = Duration::from_secs(2);
/// How long a killed process may take to end. A process that waits for a disk takes its time.
const KILLING: Duration = Duration::from_secs(3);

/// Runs as a launcher. Standard input is the socket to the gateway.
#[must_use]
pub fn run() -> ExitCode {
    match live() {
        Ok(()) => ExitCode::SUCCESS,
        // The gateway is gone, so nobody reads the error.
        Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: launcher: {error}");
            ExitCode::FAILURE
        }
    }
}

fn live() -> std::io::Result<()> {
    close_inherited();
    let mut gateway = Inbox::new(UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?));
    let Some(opening) = gateway.next()? else { return Ok(()) };
    let (terms, folder) = match wire::message(&opening)? {
        Opening::Supervisor { open_files } => {
            open_files.map_or(Ok(()), open_files::restore)?;
            return supervise(gateway);
        }
        Opening::Launcher { terms, folder } => (terms, folder),
        Opening::Emptying { terms, folder } => return empty(gateway, &terms, &folder),
    };
    let confined = match confine(&terms, Some(&folder)) {
        Ok(confined) => confined,
        Err(error) => return gateway.send(&LauncherReport::NotStarted(error.to_string().into())),
    };
    // Blocks signals before the first thread begins.
    let parts =
        || Ok((children()?, Starter::new(&folder)?, Work::new(folder)?, ProcessTree::new(confined.signals_only_own)?));
    let (children, starter, work, tree) = match parts() {
        Ok(parts) => parts,
        Err(error) => return gateway.send(&LauncherReport::NotStarted(std::io::Error::into(error))),
    };
    let lacks = confined.refuse_calls(&tree.guarded());
    gateway.send(&LauncherReport::Ready(lacks))?;
    let cpu = terms.limits.cpu;
    let mut launcher = Launcher { gateway, children, starter, work, tree, copy: None, cpu, used: Duration::ZERO };
    let mut goes_on = Ok(true);
    while let Ok(true) = goes_on {
        goes_on = launcher.serve();
    }
    if goes_on.is_err() {
        // Nothing of a program stays after any failure.
        launcher.tree.kill_all(KILLING, |_, _| ());
    }
    goes_on.map(drop)
}

/// Empties `folder`, and reports the result.
fn empty(mut gateway: Inbox, terms: &LaunchOptions, folder: &Path) -> std::io::Result<()> {
    // Landlock checks all folders above for each call, which takes minutes in a deep tree. The emptying itself stays in the folder.
    let emptied = confine(terms, None).map_err(|error| error.to_string()).and_then(|confined| {
        drop(confined.refuse_calls(&[]));
        emptying::empty(folder, Instant::now() + EMPTYING).map_err(|error| error.to_string())
    });
    gateway.send(&match emptied {
        Ok(()) => LauncherReport::Ready(Vec::new()),
        Err(why) => LauncherReport::NotStarted(why.into()),
    })
}

/// A descriptor that becomes readable when a child has ended.
fn children() -> std::io::Result<SignalFd> {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    // A signal that reaches the launcher after all must not end it. Programs start without a mask.
    SigSet::all().thread_block()?;
    Ok(SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?)
}

/// Closes descriptors that the gateway's parent left open, and that no program should have.
fn close_inherited() {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<i32> = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        // The list's own descriptor is closed already.
        let _ = nix::unistd::close(number);
    }
}

struct Launcher {
    gateway: Inbox,
    children: SignalFd,
    starter: Starter,
    work: Work,
    tree: ProcessTree,
    /// Set if a copy of a folder is there that programs have not changed.
    copy: Option<Unchanged>,
    /// The processor time that each process may use, the launcher included, in seconds.
    cpu: Option<u64>,
    /// The processor time of all earlier programs.
    used: Duration,
}

/// The state when a program has ended.
struct GoingOn {
    /// Whether the gateway is still there.
    is_served: bool,
    /// Whether the gateway requested the end.
    is_stopped: bool,
}

impl Launcher {
    /// Runs the next program. Returns whether the launcher can run another one.
    fn serve(&mut self) -> std::io::Result<bool> {
        let Some(body) = self.gateway.next()? else { return Ok(false) };
        // A stop that comes after its program's end needs no action.
        let LauncherRequest::Start(start) = wire::message(&body)? else { return Ok(true) };
        let streams = self.gateway.streams();
        let (mut how, mut is_served, mut is_first, mut has_no_descendants, mut is_cut) =
            (ExitKind::Unknown, true, false, true, false);
        let stdout = streams.get(1).and_then(|stdout| fstat(stdout).ok()).map(|data| (data.st_dev, data.st_ino));
        let commands = match self.prepare(&start, streams) {
            Ok(commands) => commands,
            Err(why) => return self.refuse(why.into()),
        };
        for (command, before) in commands.into_iter().zip([true, false]) {
            let Some(command) = command else { continue };
            is_first = before;
            let pid = match self.starter.start(&command, &start.environment) {
                Ok(pid) => pid,
                Err(failure) => return self.refuse(failure.of_first(is_first)),
            };
            // Close the program's ends of the pipes: a reader waits until the last of them is closed.
            drop(command);
            how = ExitKind::Unknown;
            let mut seen = |ended: Pid, so: ExitKind| {
                if ended == pid {
                    how = so;
                }
            };
            let going_on = self.attend(pid, &mut seen)?;
            has_no_descendants = reap_all(AFTERLIFE, &mut seen) || {
                is_cut = stdout.is_none_or(is_held);
                self.tree.kill_all(KILLING, &mut seen)
            };
            is_served = going_on.is_served;
            if how != ExitKind::Code(0) || going_on.is_stopped || !is_served || !has_no_descendants {
                break;
            }
        }
        if !is_served {
            return Ok(false);
        }
        let fate = if start.is_handed_over { Fate::Ends } else { self.fate(has_no_descendants) };
        let (used, peak) = usage();
        let cpu = used.saturating_sub(std::mem::replace(&mut self.used, used));
        self.gateway.send(&LauncherReport::Ended(Ended { how, cpu, peak, is_cut, fate, is_first }))?;
        // The gateway does not wait for this. If something stays, this launcher runs no other program.
        let is_emptied = fate == Fate::Waits && self.empty_but_copy().is_ok();
        if is_emptied {
            self.gateway.send(&LauncherReport::Ready(Vec::new()))?;
        }
        // An idle launcher keeps no file system busy.
        let _ = chdir("/");
        Ok(fate == Fate::Goes || is_emptied)
    }

    /// The fate of this launcher when its program has ended, and all descendants of it if `has_no_descendants`.
    fn fate(&mut self, has_no_descendants: bool) -> Fate {
        match (has_no_descendants && !self.is_tired(), self.work.is_as_made(SystemTime::now)) {
            (true, true) => Fate::Goes,
            (true, false) if self.work.is_in_place() => Fate::Waits,
            _ => Fate::Ends,
        }
    }

    /// Removes all that the program left, but not a copy that it did not change.
    fn empty_but_copy(&mut self) -> std::io::Result<()> {
        self.copy = self.copy.take().filter(Unchanged::holds);
        let kept = self.copy.as_ref().map(|_| COPY);
        emptying::empty_but(&self.work.path, kept, Instant::now() + OWN_EMPTYING)
    }

    /// A copy of the folder `what`: the one that the last program left unchanged, or a new one.
    fn copied(&mut self, what: &Copied, is_handed_over: bool) -> Result<PathBuf, String> {
        let folder = self.work.path.join(OsStr::from_bytes(COPY.to_bytes()));
        // Looked at once more: the last program may have removed all of it, and whoever can write to the work folders may have changed it since.
        if self.copy.as_ref().is_some_and(|copy| copy.is_of(what) && copy.holds()) {
            return Ok(folder);
        }
        self.remove_copy()?;
        let count = copy::copy(what, &folder).map_err(|error| error.to_string())?;
        // A launcher that hands its folder over runs no other program.
        self.copy = if is_handed_over { None } else { Unchanged::note(what, count, &folder, &self.work) };
        Ok(folder)
    }

    /// Removes a copy that does not serve the next program.
    fn remove_copy(&mut self) -> Result<(), String> {
        if self.copy.take().is_none() {
            return Ok(());
        }
        emptying::empty(&self.work.path, Instant::now() + OWN_EMPTYING).map_err(|error| error.to_string())
    }

    /// Whether this process has used so much processor time that the kernel may kill it at its limit.
    fn is_tired(&self) -> bool {
        let used = getrusage(UsageWho::RUSAGE_SELF).map(|usage| of(&usage));
        self.cpu.is_some_and(|max| used.is_ok_and(|used| used * 2 > Duration::from_secs(max)))
    }

    /// Reports that the program could not be started. The next program gets another launcher, for any reason.
    fn refuse(&mut self, failure: StartFailure) -> std::io::Result<bool> {
        // The program may run already, if only a later step failed.
        self.tree.kill_all(KILLING, |_, _| ());
        self.gateway.send(&LauncherReport::NotStarted(failure))?;
        Ok(false)
    }

    /// The commands of `start`: the program to run first, and the program itself.
    fn prepare<'a>(
        &mut self,
        start: &'a Start<'_>,
        streams: Vec<OwnedFd>,
    ) -> Result<[Option<SpawnCommand<'a>>; 2], String> {
        let streams = <[OwnedFd; STREAMS]>::try_from(streams).map_err(|_| "its streams did not arrive".to_owned())?;
        if self.work.is_gone() {
            return Err(format!("its work folder is gone: {}", self.work.path.display()));
        }
        let folder = if let Some(what) = &start.copy {
            Cow::Owned(self.copied(what, start.is_handed_over)?.join(&what.inside))
        } else {
            self.remove_copy()?;
            let folder = start.folder.iter().next().map(|path| Path::new(OsStr::from_bytes(path.to_bytes())));
            folder.map_or_else(|| Cow::Owned(self.work.path.clone()), Cow::Borrowed)
        };
        let mut first = None;
        if let Some(words) = &start.first {
            let nothing = File::open("/dev/null").map_err(|error| error.to_string())?;
            let again = || streams[2].try_clone().map_err(|error| error.to_string());
            first = Some(SpawnCommand::new(words, folder.clone(), [nothing.into(), again()?, again()?])?);
        }
        Ok([first, Some(SpawnCommand::new(&start.command, folder, streams)?)])
    }

    /// Waits until the program ends, by itself or on request of the gateway.
    fn attend(&mut self, pid: Pid, seen: &mut impl FnMut(Pid, ExitKind)) -> std::io::Result<GoingOn> {
        loop {
            let mut awaited =
                [self.gateway.as_fd(), self.children.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            match poll(&mut awaited, PollTimeout::NONE) {
                Err(nix::errno::Errno::EINTR) => continue,
                result => result?,
            };
            let [has_word, has_lost] = awaited.map(|one| one.any().unwrap_or(true));
            if has_lost {
                // Comes before reaping: a process that ends later is announced again.
                self.children.read_signal()?;
                // The program comes first: of other processes there may be ever more.
                if let Reaped::Child(ended, how) = reap(Some(pid)) {
                    seen(ended, how);
                    return Ok(GoingOn { is_served: true, is_stopped: false });
                }
                // Orphans that have ended would stay as long as the program, which may be a worker.
                for _ in 0..MAX_AT_ONCE {
                    let Reaped::Child(ended, how) = reap(None) else { break };
                    seen(ended, how);
                    if ended == pid {
                        return Ok(GoingOn { is_served: true, is_stopped: false });
                    }
                }
            }
            if has_word {
                let word = self.gateway.next().ok().flatten();
                let request = word.as_ref().and_then(|body| wire::message(body).ok());
                let grace = if let Some(LauncherRequest::Stop(grace)) = request { grace } else { Duration::ZERO };
                if !grace.is_zero() {
                    self.tree.signal_all(Signal::SIGTERM);
                    reap_all(grace, &mut *seen);
                }
                self.tree.kill_all(KILLING, &mut *seen);
                return Ok(GoingOn { is_served: word.is_some(), is_stopped: true });
            }
        }
    }
}

/// The processor time of all reaped children, and the most memory that one of them used, in bytes.
fn usage() -> (Duration, u64) {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return Default::default() };
    (of(&usage), u64::try_from(usage.max_rss()).unwrap_or(0) * 1024)
}

/// The processor time in `usage`.
fn of(usage: &Usage) -> Duration {
    let micros = |of: fn(&Usage) -> nix::sys::time::TimeVal| u64::try_from(of(usage).num_microseconds()).unwrap_or(0);
    Duration::from_micros(micros(Usage::user_time) + micros(Usage::system_time))
}
