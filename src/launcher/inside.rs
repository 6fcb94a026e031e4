//! A launcher's own life: it gives up what programs must not have, then starts one program after the other, and leaves
//! nothing of any of them behind. It ends when the gateway does.

use std::{
    fs::DirBuilder,
    io::ErrorKind,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{
            fs::{DirBuilderExt, PermissionsExt},
            net::UnixStream,
            process::CommandExt,
        },
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        resource::{Usage, UsageWho, getrusage},
        signal::Signal,
        time::TimeValLike,
    },
    unistd::Pid,
};
use rustix::process::{PidfdFlags, pidfd_open};

use super::{
    Opening,
    confine::confine,
    copy,
    tree::{Reaped, kill_all, reap, reap_all, signal_all},
    wire::{self, Ended, How, Program, Report, Request, STREAMS},
};

/// The mode of a work folder: its owner's alone.
const OWN: u32 = 0o700;
/// How long what a program left behind may go on: it may still be writing the end of the output.
const AFTERLIFE: Duration = Duration::from_millis(250);
/// How long a process may take to end that was killed. One that waits for a disk takes its time.
const KILLING: Duration = Duration::from_secs(3);

/// Lives as a launcher; standard input is the socket to the gateway.
#[must_use]
pub fn run() -> ExitCode {
    match live() {
        Ok(()) => ExitCode::SUCCESS,
        // The gateway is gone, and with it whoever would want to know.
        Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: launcher: {error}");
            ExitCode::FAILURE
        }
    }
}

fn live() -> std::io::Result<()> {
    let mut socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let opening = wire::receive::<Opening>(&mut socket)?;
    let Some((Opening { terms, folder }, _)) = opening else { return Ok(()) };
    let ready = match confine(&terms, &folder) {
        Ok(lacks) => Report::Ready(lacks),
        Err(why) => Report::NotStarted(why),
    };
    let is_ready = matches!(ready, Report::Ready(_));
    wire::send(&mut socket, &ready)?;
    let mut launcher = Launcher { socket, work: folder.join("work") };
    while is_ready && launcher.serve()? {}
    Ok(())
}

struct Launcher {
    socket: UnixStream,
    work: PathBuf,
}

/// How things are when a program has ended.
struct GoingOn {
    /// Whether the gateway is still there.
    is_served: bool,
    /// Whether it wanted the end.
    is_stopped: bool,
}

impl Launcher {
    /// Runs the next program; whether there was one.
    fn serve(&mut self) -> std::io::Result<bool> {
        let Some((request, streams)) = wire::receive::<Request>(&mut self.socket)? else { return Ok(false) };
        // What has ended needs no stop.
        let Request::Start(program) = request else { return Ok(true) };
        let before = usage();
        let (mut how, mut is_served, mut is_first, mut is_alone) = (How::Unknown, true, false, true);
        let commands = match prepare(program, streams, &self.work) {
            Ok(commands) => commands,
            Err(why) => return self.refuse(why),
        };
        let last = commands.len() - 1;
        for (index, mut command) in commands.into_iter().enumerate() {
            is_first = index < last;
            let of = if is_first { "init: " } else { "" };
            let spawned = command.spawn().map_err(|error| format!("{of}{error}"));
            let pid = spawned
                .and_then(|child| i32::try_from(child.id()).map(Pid::from_raw).map_err(|error| error.to_string()));
            let pid = match pid {
                Ok(pid) => pid,
                Err(why) => return self.refuse(why),
            };
            // Its ends of the pipes: who reads them waits for the last of them to be closed.
            drop(command);
            how = How::Unknown;
            let mut seen = |ended: Pid, so: How| {
                if ended == pid {
                    how = so;
                }
            };
            let going_on = self.attend(pid, &mut seen).inspect_err(|_| {
                kill_all(Instant::now() + KILLING, |_, _| ());
            })?;
            is_alone = reap_all(Instant::now() + AFTERLIFE, &mut seen) || kill_all(Instant::now() + KILLING, &mut seen);
            is_served = going_on.is_served;
            if how != How::Code(0) || going_on.is_stopped || !is_served || !is_alone {
                break;
            }
        }
        if is_served {
            let after = usage();
            let (cpu, peak) = (after.0.saturating_sub(before.0), after.1);
            wire::send(&mut self.socket, &Report::Ended(Ended { how, cpu, peak, is_alone, is_first }))?;
        }
        // Nobody waits for that. Where something stays, no program comes after this one.
        Ok(clear(&self.work) && is_served)
    }

    /// Tells that the program could not be started.
    fn refuse(&mut self, why: String) -> std::io::Result<bool> {
        wire::send(&mut self.socket, &Report::NotStarted(why))?;
        Ok(clear(&self.work))
    }

    /// Waits until the program ends, by itself or as the gateway wishes.
    fn attend(&mut self, pid: Pid, seen: &mut impl FnMut(Pid, How)) -> std::io::Result<GoingOn> {
        let known = rustix::process::Pid::from_raw(pid.as_raw()).ok_or(std::io::ErrorKind::NotFound)?;
        let program = pidfd_open(known, PidfdFlags::empty())?;
        loop {
            let mut awaited =
                [PollFd::new(program.as_fd(), PollFlags::POLLIN), PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            match poll(&mut awaited, PollTimeout::NONE) {
                Err(nix::errno::Errno::EINTR) => continue,
                result => result?,
            };
            let [has_ended, has_word] = awaited.map(|one| one.any().unwrap_or(true));
            if has_ended {
                // Its children first: reaping goes on until it is the program's turn.
                let mut is_over = false;
                while let Reaped::Child(ended, how) = reap() {
                    is_over |= ended == pid;
                    seen(ended, how);
                }
                if is_over {
                    return Ok(GoingOn { is_served: true, is_stopped: false });
                }
            }
            if has_word {
                let word = wire::receive::<Request>(&mut self.socket).ok().flatten();
                let grace = if let Some((Request::Stop(grace), _)) = &word { *grace } else { Duration::ZERO };
                if !grace.is_zero() {
                    signal_all(Signal::SIGTERM);
                    reap_all(Instant::now() + grace, &mut *seen);
                }
                kill_all(Instant::now() + KILLING, &mut *seen);
                return Ok(GoingOn { is_served: word.is_some(), is_stopped: true });
            }
        }
    }
}

/// Makes the work folder of `program`, and the commands that run in it one after the other: one at least.
fn prepare(program: Program, streams: Vec<OwnedFd>, work: &Path) -> Result<Vec<Command>, String> {
    let streams = <[OwnedFd; STREAMS]>::try_from(streams).map_err(|_| "its streams did not arrive".to_owned())?;
    let [stdin, stdout, stderr] = streams;
    match DirBuilder::new().mode(OWN).create(work) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(format!("cannot make its work folder: {error}"));
        }
        // What is there is as good as new.
        Ok(()) | Err(_) => {}
    }
    let mut folder = program.folder.unwrap_or_else(|| work.to_owned());
    if let Some(copy) = &program.copy {
        folder = work.join("copy");
        copy::copy(copy, &folder)?;
    }
    let environment: Vec<_> =
        program.environment.into_iter().map(|(name, value)| (name, std::ffi::OsString::from(value))).collect();
    let command = |program: &Path, arguments: &[String]| {
        // Only in a copy is a path relative.
        let mut command = Command::new(folder.join(program));
        command.args(arguments).env_clear().envs([("HOME", work), ("TMPDIR", work)]);
        command.envs(environment.iter().map(|(name, value)| (name, value))).current_dir(&folder).process_group(0);
        command
    };
    let mut commands = Vec::new();
    if let Some(first) = &program.first {
        let again = |fd: &OwnedFd| fd.try_clone().map_err(|error| error.to_string());
        let mut command = command(&first.program, &first.arguments);
        command.stdin(Stdio::null()).stdout(again(&stderr)?).stderr(again(&stderr)?);
        commands.push(command);
    }
    let mut command = command(&program.program, &program.arguments);
    command.stdin(stdin).stdout(stdout).stderr(stderr);
    commands.push(command);
    Ok(commands)
}

/// Removes the work folder with all that is in it; whether that worked. One that is as it was made stays, since to remove
/// and make it takes a third of the time of a small program.
fn clear(work: &Path) -> bool {
    let is_own = work.symlink_metadata().is_ok_and(|data| data.is_dir() && data.permissions().mode() & 0o7777 == OWN);
    if is_own && std::fs::read_dir(work).is_ok_and(|mut entries| entries.next().is_none()) {
        return true;
    }
    match std::fs::remove_dir_all(work) {
        Err(error) if error.kind() != ErrorKind::NotFound => false,
        Ok(()) | Err(_) => true,
    }
}

/// The processor time of all children that were reaped, and the most memory that one of them took, in bytes.
fn usage() -> (Duration, u64) {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return Default::default() };
    let micros = |of: fn(&Usage) -> nix::sys::time::TimeVal| u64::try_from(of(&usage).num_microseconds()).unwrap_or(0);
    let cpu = Duration::from_micros(micros(Usage::user_time) + micros(Usage::system_time));
    (cpu, u64::try_from(usage.max_rss()).unwrap_or(0) * 1024)
}
