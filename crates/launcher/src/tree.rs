//! The processes that a program leaves behind. The launcher is their reaper: when their parents end, they become children
//! of the launcher, in all cases. So none is missed.

use std::{
    collections::HashMap,
    io,
    os::unix::fs::MetadataExt,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{self, sleep},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{Pid, getppid, gettid},
};

use super::wire::ExitKind;

/// The time between two checks for remaining processes.
const PACE: Duration = Duration::from_millis(2);
/// The stack of the thread that sends signals, in bytes.
const STACK: usize = 128 * 1024;

/// The result of one attempt to reap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaped {
    /// A child that has ended.
    Child(Pid, ExitKind),
    /// All children are alive.
    NoneYet,
    /// There are no children.
    Alone,
}

/// Reaps `which`, or any child, if it has ended.
pub(crate) fn reap(which: Option<Pid>) -> Reaped {
    loop {
        match waitpid(which, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) => return Reaped::Child(pid, ExitKind::Code(code)),
            Ok(WaitStatus::Signaled(pid, signal, _)) => return Reaped::Child(pid, ExitKind::Signal(signal as i32)),
            Ok(WaitStatus::StillAlive) => return Reaped::NoneYet,
            Err(Errno::ECHILD) => return Reaped::Alone,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return Reaped::NoneYet,
        }
    }
}

/// Reaps children until there are none, or until `patience` is over. Calls `seen` for each. Returns whether none is left.
pub(crate) fn reap_all(patience: Duration, mut seen: impl FnMut(Pid, ExitKind)) -> bool {
    let mut until = None;
    loop {
        match reap(None) {
            Reaped::Child(pid, how) => seen(pid, how),
            Reaped::Alone => return true,
            Reaped::NoneYet => sleep(PACE),
        }
        // Checked even if there is always another child: a fork bomb makes them without end.
        if Instant::now() >= *until.get_or_insert_with(|| Instant::now() + patience) {
            return false;
        }
    }
}

/// How the descendants of this process are found.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    /// Signals all descendants at once, if this process can signal these and no other process. They cannot outrun it by forking.
    killer: Option<Killer>,
}

/// A thread that signals every process that this one may signal. The calls of the other threads are filtered: programs inherit that, and
/// must not signal their launcher.
#[derive(Debug)]
struct Killer {
    thread: Pid,
    signals: SyncSender<Signal>,
    sent: Receiver<()>,
}

impl Killer {
    /// Starts the thread. The filter must come later.
    fn start() -> io::Result<Self> {
        let ((signals, wanted), (done, sent), (report_id, id)) = (sync_channel(0), sync_channel(1), sync_channel(1));
        thread::Builder::new().stack_size(STACK).spawn(move || {
            let _ = report_id.send(gettid());
            for signal in wanted {
                // Every process that this one may signal, except itself (kill(2)).
                let _ = kill(Pid::from_raw(-1), signal);
                let _ = done.send(());
            }
        })?;
        let thread = id.recv().map_err(io::Error::other)?;
        Ok(Self { thread, signals, sent })
    }
}

impl ProcessTree {
    /// The descendants of this process. `signals_only_own`: it can signal these and no other process.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn new(signals_only_own: bool) -> io::Result<Self> {
        Ok(Self { killer: signals_only_own.then(Killer::start).transpose()? })
    }

    /// The processes and threads that programs must not signal: this process, and the one that started it.
    pub(crate) fn guarded(&self) -> Vec<Pid> {
        [Pid::this(), getppid()].into_iter().chain(self.killer.as_ref().map(|killer| killer.thread)).collect()
    }

    /// Kills all descendants of this process until none is left, or until `patience` is over. Calls `seen` for each child.
    /// Returns whether none is left.
    pub(crate) fn kill_all(&self, patience: Duration, mut seen: impl FnMut(Pid, ExitKind)) -> bool {
        let began = Instant::now();
        loop {
            self.signal_all(Signal::SIGKILL);
            // A process that was started meanwhile is found in the next round.
            if reap_all(PACE * 5, &mut seen) {
                return true;
            }
            if began.elapsed() >= patience {
                return false;
            }
        }
    }

    /// Sends `signal` to all descendants of this process.
    pub(crate) fn signal_all(&self, signal: Signal) {
        if let Some(killer) = &self.killer {
            if killer.signals.send(signal).is_ok() {
                let _ = killer.sent.recv();
            }
            return;
        }
        for pid in descendants() {
            // Fails for processes that have ended.
            let _ = kill(pid, signal);
        }
    }
}

/// The children of this process that are not known. Their own children become this process's when they end, if it is a reaper.
pub(crate) fn orphans(is_known: impl Fn(Pid) -> bool) -> Vec<Pid> {
    let own = Pid::this();
    // Much quicker than a search, but not every kernel has it.
    let children = match std::fs::read_to_string(format!("/proc/self/task/{own}/children")) {
        Ok(listed) => listed.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<i32>>(),
        Err(_) => processes().filter(|(_, stat)| parent(stat) == Some(own.as_raw())).map(|(pid, _)| pid).collect(),
    };
    children.into_iter().map(Pid::from_raw).filter(|child| !is_known(*child)).collect()
}

/// Whether a descendant of this process has `file` open, a device and an inode number. Also true if that cannot be
/// read.
pub(crate) fn is_held(file: (u64, u64)) -> bool {
    descendants().into_iter().any(|pid| match std::fs::read_dir(format!("/proc/{pid}/fd")) {
        Ok(open) => open
            .flatten()
            .any(|entry| std::fs::metadata(entry.path()).is_ok_and(|data| (data.dev(), data.ino()) == file)),
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    })
}

/// All descendants of this process, parents before their children.
fn descendants() -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (pid, stat) in processes() {
        if let Some(parent) = parent(&stat) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found: Vec<i32> = children.remove(&Pid::this().as_raw()).unwrap_or_default();
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    found.into_iter().map(Pid::from_raw).collect()
}

/// The parent's process id in a process's `stat`.
fn parent(stat: &str) -> Option<i32> {
    stat.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// All processes, each with the fields after its name in `/proc/…/stat` (proc(5)): state, parent, group, session.
fn processes() -> impl Iterator<Item = (i32, String)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name is in parentheses and may hold any character.
        Some((pid, stat.rsplit_once(") ")?.1.to_owned()))
    })
}
