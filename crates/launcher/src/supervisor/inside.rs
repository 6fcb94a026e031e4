//! The supervisor process. It starts launchers, and becomes the parent of every process whose launcher was killed. It runs no
//! program itself, and no program can signal it: landlock or a filter of system calls refuses that.

use std::{
    collections::HashSet,
    io,
    os::fd::AsFd as _,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        prctl,
        signal::{SigSet, Signal, kill},
        signalfd::{SfdFlags, SignalFd},
    },
    unistd::{Pid, setsid},
};

use super::{
    super::{
        ARGUMENT,
        failure::StartFailure,
        tree::{Reaped, orphans, reap},
        wire::{self, Inbox},
    },
    SupervisorReport, SupervisorRequest,
};

/// The time between two attempts to end the processes of dead launchers.
const PACE: Duration = Duration::from_millis(2);
/// How often in a row it is tried: a process that always starts the next one is found by chance.
const ATTEMPTS: usize = 20;
/// How many processes are reaped before anything else is done.
const MAX_AT_ONCE: usize = 1000;
/// How long the gateway waits for the end of a launcher's processes.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long launchers may take to end by themselves when the gateway has ended. Their programs have 3 s of it.
const LAST_PROGRAMS: Duration = Duration::from_secs(5);
/// How long the end of all processes may take then.
const LAST_PROCESSES: Duration = Duration::from_secs(15);

/// The supervisor's state.
struct Supervising {
    gateway: Inbox,
    children: SignalFd,
    launchers: HashSet<Pid>,
    /// Launchers that have ended, and since when. The gateway has no report of them yet, as processes may be left of them.
    ended: Vec<(Pid, Instant)>,
    /// Whether processes may be left of launchers.
    has_orphans: bool,
}

/// Serves `gateway` until it has ended, and then ends all launchers and their processes.
///
/// # Errors
/// When the system refuses a call that a supervisor needs.
pub(crate) fn supervise(gateway: Inbox) -> io::Result<()> {
    setsid()?;
    // Without it, the processes of a killed launcher are out of reach. The launchers report that the kernel lacks it.
    let _ = prctl::set_child_subreaper(true);
    // No other process of this user may read this one's memory, or take its socket.
    let _ = prctl::set_dumpable(false);
    // Nothing but KILL ends it early. Launchers start without a mask.
    SigSet::all().thread_block()?;
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    let children = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let (launchers, ended) = (HashSet::new(), Vec::new());
    let mut supervising = Supervising { gateway, children, launchers, ended, has_orphans: false };
    // Without a gateway there is nobody to report to.
    while supervising.serve().unwrap_or(false) {}
    supervising.finish();
    Ok(())
}

impl Supervising {
    /// Handles all events. Returns whether the gateway is still there.
    fn serve(&mut self) -> io::Result<bool> {
        // Several messages may arrive at once, the first one with the opening.
        let is_waiting = self.gateway.has_next()?;
        let mut awaited = [self.gateway.as_fd(), self.children.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let pace = match (is_waiting, self.has_orphans) {
            (true, _) => Duration::ZERO,
            (false, true) => PACE,
            (false, false) => Duration::MAX,
        };
        match poll(&mut awaited, PollTimeout::try_from(pace).unwrap_or(PollTimeout::NONE)) {
            Err(nix::errno::Errno::EINTR) => return Ok(true),
            result => result?,
        };
        let has_word = is_waiting || awaited[0].any().unwrap_or(true);
        self.end_orphans();
        self.report()?;
        if !has_word {
            return Ok(true);
        }
        loop {
            let Some(body) = self.gateway.next()? else { return Ok(false) };
            match wire::message(&body)? {
                SupervisorRequest::Start => {
                    let started = self.start();
                    self.gateway.send(&SupervisorReport::Started(started))?;
                }
                SupervisorRequest::Kill(id) => self.kill(id),
            }
            if !self.gateway.has_next()? {
                return Ok(true);
            }
        }
    }

    #[allow(clippy::zombie_processes, reason = "all children are reaped by `end_orphans`")]
    fn start(&mut self) -> Result<u32, StartFailure> {
        let socket =
            self.gateway.streams().pop().ok_or_else(|| StartFailure::from("its socket did not arrive".to_owned()))?;
        // The gateway's own program, even if its file has been replaced.
        let launcher =
            Command::new("/proc/self/exe").arg(ARGUMENT).env_clear().stdin(socket).stdout(Stdio::null()).spawn()?;
        let id = launcher.id();
        self.launchers.extend(i32::try_from(id).map(Pid::from_raw));
        Ok(id)
    }

    fn kill(&self, id: u32) {
        let launcher = i32::try_from(id).map(Pid::from_raw).ok().filter(|launcher| self.launchers.contains(launcher));
        if let Some(launcher) = launcher {
            let _ = kill(launcher, Signal::SIGKILL);
        }
    }

    /// Reaps processes that have ended, and kills those that launchers left.
    fn end_orphans(&mut self) {
        let _ = self.children.read_signal();
        for _ in 0..ATTEMPTS {
            for _ in 0..MAX_AT_ONCE {
                let Reaped::Child(child, _) = reap(None) else { break };
                if self.launchers.remove(&child) {
                    self.ended.push((child, Instant::now()));
                }
                self.has_orphans = true;
            }
            if !self.has_orphans {
                return;
            }
            let left = orphans(|child| self.launchers.contains(&child));
            self.has_orphans = !left.is_empty();
            for process in left {
                // Fails for processes that have ended.
                let _ = kill(process, Signal::SIGKILL);
            }
        }
    }

    /// Reports the launchers of which nothing is left.
    fn report(&mut self) -> io::Result<()> {
        let has_orphans = self.has_orphans;
        let gone = self.ended.extract_if(.., |(_, since)| !has_orphans || since.elapsed() >= PATIENCE);
        for (launcher, _) in gone {
            if let Ok(id) = u32::try_from(launcher.as_raw()) {
                self.gateway.send(&SupervisorReport::Gone(id))?;
            }
        }
        Ok(())
    }

    /// Waits until the launchers have ended, which see for themselves that the gateway is gone. Kills those that do not end.
    fn finish(&mut self) {
        let began = Instant::now();
        while began.elapsed() < LAST_PROCESSES {
            self.has_orphans = true;
            self.end_orphans();
            if self.launchers.is_empty() && !self.has_orphans {
                return;
            }
            if began.elapsed() > LAST_PROGRAMS {
                for launcher in &self.launchers {
                    let _ = kill(*launcher, Signal::SIGKILL);
                }
            }
            std::thread::sleep(PACE);
        }
    }
}
