//! A launcher gives up rights for good before it starts the first program, so that no program gets them back. It reports
//! what the kernel cannot take away.

mod syscalls;

use std::{error::Error, path::Path};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use nix::{
    sched::{CloneFlags, unshare},
    sys::{
        prctl,
        resource::{Resource, setrlimit},
        signal::kill,
    },
    unistd::{Gid, Pid, Uid, getgid, getppid, getuid, setgid, setgroups, setsid, setuid},
};

use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use super::terms::{LaunchOptions, Network, ProcessLimits, ProgramUser, SINKS, SYSTEM};

/// Why a process cannot be confined as it must be: the step, and the system's error.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {cause}")]
pub struct ConfineError {
    step: String,
    #[source]
    cause: Box<dyn Error + Send + Sync>,
}

impl ConfineError {
    fn at<E: Error + Send + Sync + 'static>(step: impl Into<String>) -> impl FnOnce(E) -> Self {
        let step = step.into();
        move |cause| Self { step, cause: Box::new(cause) }
    }
}

/// The rights that were taken away from this process.
#[derive(Debug)]
pub(crate) struct Confined {
    lacks: Vec<String>,
    network: Network,
    /// Whether it is in a network without interfaces.
    is_cut_off: bool,
    walls: Walls,
    /// Whether it can signal its own descendants and no other process.
    pub signals_only_own: bool,
    /// Whether system calls may be refused.
    can_refuse: bool,
}

/// Applies `terms` to this process, with `folder` as its work folder. Without one, landlock does not limit which files it reaches.
/// [`Confined::refuse_calls`] must follow.
///
/// # Errors
/// When the process would have more rights than `terms` permit, or fewer than it needs.
pub(crate) fn confine(terms: &LaunchOptions, folder: Option<&Path>) -> Result<Confined, ConfineError> {
    let (mut lacks, starter, network) = (Vec::new(), getppid(), terms.network);
    setsid().map_err(ConfineError::at("cannot begin a session"))?;
    if let Err(error) = prctl::set_child_subreaper(true) {
        lacks.push(format!("processes that leave their parents cannot be found again: {error}"));
    }
    // When memory is short, the kernel kills programs before the gateway.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let is_cut_off = terms.network == Network::None && leave_network();
    limit(terms.limits)?;
    terms.user.map_or(Ok(()), become_user)?;
    // Otherwise a program of the same user could take this process's socket and answer in its place.
    if let Err(error) = prctl::set_dumpable(false) {
        lacks.push(format!("programs may read the memory of the process that starts them: {error}"));
    }
    if let Err(error) = prctl::set_no_new_privs() {
        lacks.push(format!("programs may gain privileges: {error}"));
        let walls = Walls { stand: false, block_tcp: false };
        return Ok(Confined { lacks, network, is_cut_off, walls, signals_only_own: false, can_refuse: false });
    }
    // Root without capabilities only owns its files. With capabilities it could read the gateway's memory, which landlock
    // by itself does not forbid.
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .map_err(ConfineError::at("cannot give up capabilities"))?;
    let walls = match folder {
        Some(folder) => wall_in(terms, folder).map_err(ConfineError::at("landlock"))?,
        None => Walls { stand: false, block_tcp: false },
    };
    // Also test the kernel's promise: a signal must not reach the process that started this one.
    let signals_only_own =
        walls.stand && supports(|ruleset| ruleset.scope(Scope::Signal)) && kill(starter, None).is_err();
    lacks.extend(lacks_of_landlock(walls, signals_only_own));
    Ok(Confined { lacks, network, is_cut_off, walls, signals_only_own, can_refuse: true })
}

impl Confined {
    /// Refuses system calls from now on, in this thread and in all programs that it starts, signals to `guarded` processes
    /// among them. Comes last, since the filter refuses calls that are needed before. Returns all that could not be taken away.
    pub(crate) fn refuse_calls(self, guarded: &[Pid]) -> Vec<String> {
        let Self { mut lacks, network, is_cut_off, walls, can_refuse, .. } = self;
        if !can_refuse {
            return lacks;
        }
        let refusal = syscalls::refuse(network, guarded);
        if let Err(why) = &refusal {
            lacks.push(format!(
                "programs may change other processes of their user, such as the gateway's limits: {why}"
            ));
            lacks.push(format!(
                "programs may end the process that contains them, and leave shared memory behind: {why}"
            ));
        }
        if network == Network::None && refusal.is_err() && !is_cut_off {
            lacks.push(if walls.block_tcp {
                "`network: none` stops TCP only: the gateway may make no network namespace".to_owned()
            } else {
                "`network: none` has no effect: the gateway may make no network namespace, and the kernel's landlock covers no network".to_owned()
            });
        }
        lacks
    }
}

/// The rights that landlock on this kernel cannot take away from programs.
fn lacks_of_landlock(walls: Walls, signals_only_own: bool) -> Vec<String> {
    let mut lacks = Vec::new();
    if !walls.stand {
        lacks.push("programs may read and write all files that the gateway may: the kernel has no landlock".to_owned());
    } else if !supports(|ruleset| ruleset.handle_access(AccessFs::Truncate)) {
        lacks.push("programs may empty files that they may not write: the kernel is older than 6.2".to_owned());
    }
    if !signals_only_own {
        lacks.push(
            "programs may send signals to the gateway, so end it, unless `user` names another user for them, and may outrun \
             their end by forking: the kernel has no landlock that scopes signals (Linux 6.12)"
                .to_owned(),
        );
    }
    lacks
}

/// The restrictions by landlock.
#[derive(Debug, Clone, Copy)]
struct Walls {
    /// Whether it restricts anything.
    stand: bool,
    /// Whether it blocks TCP if the terms demand that.
    block_tcp: bool,
}

/// Whether the kernel has landlock.
pub(super) fn has_landlock() -> bool {
    supports(|ruleset| ruleset.handle_access(AccessFs::ReadFile))
}

/// Whether the kernel's landlock supports everything that `demand` adds to a ruleset.
fn supports(demand: impl FnOnce(Ruleset) -> Result<Ruleset, RulesetError>) -> bool {
    demand(Ruleset::default().set_compatibility(CompatLevel::HardRequirement)).is_ok()
}

/// Moves this process to a network without interfaces. Returns whether that worked.
fn leave_network() -> bool {
    if unshare(CloneFlags::CLONE_NEWNET).is_ok() {
        return true;
    }
    let (uid, gid) = (getuid(), getgid());
    if unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET).is_err() {
        return false;
    }
    // Users and groups keep their numbers in the new user namespace.
    let write = |file: &str, text: String| std::fs::write(format!("/proc/self/{file}"), text);
    let _ = write("setgroups", "deny".to_owned());
    let _ = write("uid_map", format!("{uid} {uid} 1"));
    let _ = write("gid_map", format!("{gid} {gid} 1"));
    true
}

fn limit(limits: ProcessLimits) -> Result<(), ConfineError> {
    for (resource, name, max) in [
        (Resource::RLIMIT_CORE, "core", Some(0)),
        (Resource::RLIMIT_CPU, "cpu", limits.cpu),
        // Not the address space: many runtimes reserve far more than they use.
        (Resource::RLIMIT_DATA, "memory", limits.memory),
        (Resource::RLIMIT_FSIZE, "fileSize", limits.file_size),
        (Resource::RLIMIT_NOFILE, "openFiles", limits.open_files),
        (Resource::RLIMIT_NPROC, "processes", limits.processes),
    ] {
        let Some(max) = max else { continue };
        let (_, hard) = nix::sys::resource::getrlimit(resource).map_err(ConfineError::at(name))?;
        let max = max.min(hard);
        setrlimit(resource, max, max).map_err(ConfineError::at(format!("cannot limit `{name}` to {max}")))?;
    }
    Ok(())
}

fn become_user(user: ProgramUser) -> Result<(), ConfineError> {
    let failed = || ConfineError::at(format!("cannot become user {}, group {}", user.uid, user.gid));
    if getuid().as_raw() == user.uid && getgid().as_raw() == user.gid {
        return Ok(());
    }
    // Groups first: without the user's rights they cannot be changed any more.
    setgroups(&[]).map_err(failed())?;
    setgid(Gid::from_raw(user.gid)).map_err(failed())?;
    setuid(Uid::from_raw(user.uid)).map_err(failed())
}

/// Allows only `folder` and the files of `terms`, as far as the kernel can.
fn wall_in(terms: &LaunchOptions, folder: &Path) -> Result<Walls, RulesetError> {
    let abi = ABI::V6;
    let (all, read) = (AccessFs::from_all(abi), AccessFs::from_read(abi));
    let mut ruleset = Ruleset::default().handle_access(all)?.scope(Scope::from_all(abi))?;
    if terms.network == Network::None {
        ruleset = ruleset.handle_access(AccessNet::from_all(abi))?;
    }
    let mut created = ruleset.create()?;
    for path in SYSTEM.iter().map(Path::new).chain(terms.readable.iter().map(AsRef::as_ref)) {
        created = allow(created, path, read)?;
    }
    let sinks = SINKS.iter().map(Path::new);
    for path in sinks.chain(terms.writable.iter().map(AsRef::as_ref)).chain([folder]) {
        created = allow(created, path, all)?;
    }
    let status = created.restrict_self()?.ruleset;
    Ok(Walls { stand: status != RulesetStatus::NotEnforced, block_tcp: status == RulesetStatus::FullyEnforced })
}

/// Allows `access` to `path` and everything below. A missing path needs no permission.
fn allow(created: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<RulesetCreated, RulesetError> {
    let Ok(opened) = PathFd::new(path) else { return Ok(created) };
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(ABI::V6) };
    created.add_rule(PathBeneath::new(opened, access))
}
