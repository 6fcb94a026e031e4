//! The system calls that programs must not make. A seccomp filter refuses them to the launcher and to all that it starts.
//!
//! Refused are calls that change or read a process which the program did not start, calls that change the machine, calls by
//! which memory outlives all processes, and calls that would get around this list (namespaces, `io_uring`, pidfds). What
//! programs do to themselves stays allowed. `kill`, `tkill`, `tgkill` and `F_SETOWN` stay allowed too, because a filter
//! cannot separate a program's own children from other processes; landlock or another user stops those. The filter itself only
//! guards the processes that end programs: the launcher and its supervisor.
//!
//! The errors are those of container runtimes, so programs and libraries handle them: `EPERM`, and `ENOSYS` where the C
//! library then takes an older call.

use std::{collections::BTreeMap, env::consts::ARCH};

use nix::{
    libc::{
        AF_UNIX, BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, CLONE_NEWCGROUP, CLONE_NEWIPC,
        CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, CLONE_NEWUTS, ENOSYS, EPERM, SIGKILL, SIGSTOP,
        SOCK_DGRAM, SOCK_RAW, SYS_acct, SYS_add_key, SYS_adjtimex, SYS_bpf, SYS_chroot, SYS_clock_adjtime,
        SYS_clock_settime, SYS_clone, SYS_clone3, SYS_delete_module, SYS_fanotify_init, SYS_fcntl, SYS_finit_module,
        SYS_fsconfig, SYS_fsmount, SYS_fsopen, SYS_fspick, SYS_init_module, SYS_io_uring_enter, SYS_io_uring_register,
        SYS_io_uring_setup, SYS_ioprio_set, SYS_kcmp, SYS_kexec_load, SYS_keyctl, SYS_kill, SYS_migrate_pages,
        SYS_mount, SYS_mount_setattr, SYS_move_mount, SYS_move_pages, SYS_mq_getsetattr, SYS_mq_notify, SYS_mq_open,
        SYS_mq_timedreceive, SYS_mq_timedsend, SYS_mq_unlink, SYS_msgctl, SYS_msgget, SYS_msgrcv, SYS_msgsnd,
        SYS_open_by_handle_at, SYS_open_tree, SYS_perf_event_open, SYS_pidfd_getfd, SYS_pidfd_open,
        SYS_pidfd_send_signal, SYS_pivot_root, SYS_prctl, SYS_prlimit64, SYS_process_madvise, SYS_process_mrelease,
        SYS_process_vm_readv, SYS_process_vm_writev, SYS_ptrace, SYS_quotactl, SYS_quotactl_fd, SYS_reboot,
        SYS_request_key, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_sched_setaffinity, SYS_sched_setattr,
        SYS_sched_setparam, SYS_sched_setscheduler, SYS_semctl, SYS_semget, SYS_semop, SYS_semtimedop,
        SYS_setdomainname, SYS_sethostname, SYS_setns, SYS_setpgid, SYS_setpriority, SYS_settimeofday, SYS_shmat,
        SYS_shmctl, SYS_shmdt, SYS_shmget, SYS_socket, SYS_socketpair, SYS_swapoff, SYS_swapon, SYS_tgkill, SYS_tkill,
        SYS_umount2, SYS_unshare, SYS_userfaultfd,
    },
    unistd::Pid,
};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen as Width, SeccompCmpOp as Compare, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter, sock_filter,
};

use crate::Network;

/// Why there is no filter of system calls.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilterError {
    #[error("seccomp filters are not supported on {ARCH}")]
    Unsupported(#[source] BackendError),
    #[error("{0}")]
    Program(#[source] BackendError),
    #[error("the kernel does not take a seccomp filter: {0}")]
    Refused(#[source] seccompiler::Error),
}

/// Calls that are refused with all arguments.
const REFUSED: &[i64] = &[
    // Other processes.
    SYS_kcmp,
    SYS_perf_event_open,
    SYS_pidfd_getfd,
    SYS_pidfd_open,
    SYS_pidfd_send_signal,
    SYS_process_madvise,
    SYS_process_mrelease,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_ptrace,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    SYS_userfaultfd,
    // Keys, which all processes of a user share.
    SYS_add_key,
    SYS_keyctl,
    SYS_request_key,
    // Memory that no process needs to hold: it counts for none, and stays after the last one. Other processes of the user can reach it.
    SYS_mq_getsetattr,
    SYS_mq_notify,
    SYS_mq_open,
    SYS_mq_timedreceive,
    SYS_mq_timedsend,
    SYS_mq_unlink,
    SYS_msgctl,
    SYS_msgget,
    SYS_msgrcv,
    SYS_msgsnd,
    SYS_semctl,
    SYS_semget,
    SYS_semop,
    SYS_semtimedop,
    SYS_shmat,
    SYS_shmctl,
    SYS_shmdt,
    SYS_shmget,
    // Calls that bypass the filter, or run code in the kernel.
    SYS_bpf,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_io_uring_setup,
    // Namespaces and mounts.
    SYS_chroot,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fsopen,
    SYS_fspick,
    SYS_mount,
    SYS_mount_setattr,
    SYS_move_mount,
    SYS_open_by_handle_at,
    SYS_open_tree,
    OPEN_TREE_ATTR,
    SYS_pivot_root,
    SYS_setns,
    SYS_umount2,
    SYS_unshare,
    // The machine. Most of these need capabilities, which programs do not have.
    SYS_acct,
    SYS_adjtimex,
    SYS_clock_adjtime,
    SYS_clock_settime,
    SYS_delete_module,
    SYS_fanotify_init,
    SYS_finit_module,
    SYS_init_module,
    SYS_kexec_load,
    SYS_quotactl,
    SYS_quotactl_fd,
    SYS_reboot,
    SYS_setdomainname,
    SYS_sethostname,
    SYS_settimeofday,
    SYS_swapoff,
    SYS_swapon,
];

/// Calls whose first argument is a process. Only 0, the caller, is allowed.
const OF_A_PROCESS: [i64; 6] = [
    SYS_migrate_pages,
    SYS_move_pages,
    SYS_sched_setaffinity,
    SYS_sched_setattr,
    SYS_sched_setparam,
    SYS_sched_setscheduler,
];

/// The flags with which `clone` enters new namespaces.
const NAMESPACES: [i32; 7] =
    [CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, CLONE_NEWUTS];

/// `open_tree_attr` of Linux 6.15, which the libc crate does not name yet.
const OPEN_TREE_ATTR: i64 = 467;
/// The first unknown call. `file_setattr` of Linux 6.17 is the last one that was checked. Later calls may do anything, so
/// they do not exist for programs. Nor do calls of x32, whose numbers are larger still. From 424 on, calls have the same number
/// on all architectures.
const FIRST_UNKNOWN: u32 = 470;

/// `PRIO_PROCESS`: `setpriority` changes one process.
const PRIO_PROCESS: u64 = 0;
/// `IOPRIO_WHO_PROCESS`: `ioprio_set` changes one process.
const IOPRIO_WHO_PROCESS: u64 = 1;
/// `PR_SCHED_CORE`: `prctl` sets which processes may share a processor's core.
const PR_SCHED_CORE: u64 = 62;
/// `F_SETSIG`: `fcntl` sets the signal that reports a change of a file.
const F_SETSIG: i32 = 10;
/// The bits of a socket's type that are not flags (`SOCK_TYPE_MASK` of the kernel).
const SOCKET_TYPE: u64 = 0xf;

/// Refuses the calls from now on, in this thread and its descendants. With [`Network::None`] also refuses all sockets
/// except connected pairs. Signals to `guarded` processes and threads are refused, and to their process groups.
///
/// # Errors
/// When the kernel or its architecture has no such filters. The text names the missing one.
pub(crate) fn refuse(network: Network, guarded: &[Pid]) -> Result<(), FilterError> {
    let arch = TargetArch::try_from(ARCH).map_err(FilterError::Unsupported)?;
    let program = program(network, guarded, arch).map_err(FilterError::Program)?;
    apply_filter(&program).map_err(FilterError::Refused)
}

/// The filter: first unknown calls and calls of x32, then the rules. Calls of another architecture, as 32-bit programs make
/// them, end the program (`SIGSYS`).
fn program(network: Network, guarded: &[Pid], arch: TargetArch) -> Result<BpfProgram, BackendError> {
    let refusal = SeccompAction::Errno(EPERM.unsigned_abs());
    let mut rules = rules(network)?;
    rules.extend(signals(guarded)?);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refusal, arch)?;
    let mut program = missing();
    program.extend(BpfProgram::try_from(filter)?);
    Ok(program)
}

/// Answers `ENOSYS` to `clone3`, whose flags a filter cannot see, and to all unknown calls.
fn missing() -> BpfProgram {
    let step = |code: u32, k: u32, jt: u8, jf: u8| {
        // All codes are below 256.
        let code = u16::try_from(code).unwrap_or(u16::MAX);
        sock_filter { code, jt, jf, k }
    };
    let clone3 = u32::try_from(SYS_clone3).unwrap_or(u32::MAX);
    vec![
        // The call's number is the first field of `struct seccomp_data`.
        step(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0),
        step(BPF_JMP | BPF_JGE | BPF_K, FIRST_UNKNOWN, 1, 0),
        step(BPF_JMP | BPF_JEQ | BPF_K, clone3, 0, 1),
        step(BPF_RET | BPF_K, SeccompAction::Errno(ENOSYS.unsigned_abs()).into(), 0, 0),
    ]
}

/// The refused calls and the arguments for which they are refused. One matching rule suffices; a call without rules is
/// always refused.
fn rules(network: Network) -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let is = |index: u8, mask: u64, value: u64| {
        SeccompRule::new(vec![SeccompCondition::new(index, Width::Dword, Compare::MaskedEq(mask), value)?])
    };
    let is_not =
        |index: u8, value: u64| SeccompRule::new(vec![SeccompCondition::new(index, Width::Dword, Compare::Ne, value)?]);
    let mut rules: BTreeMap<_, _> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    for call in OF_A_PROCESS {
        rules.insert(call, vec![is_not(0, 0)?]);
    }
    // Reading the limits of another process changes nothing.
    let is_foreign = SeccompCondition::new(0, Width::Dword, Compare::Ne, 0)?;
    let sets = SeccompCondition::new(2, Width::Qword, Compare::Ne, 0)?;
    rules.insert(SYS_prlimit64, vec![SeccompRule::new(vec![is_foreign, sets])?]);
    rules.insert(SYS_setpriority, vec![is_not(0, PRIO_PROCESS)?, is_not(1, 0)?]);
    rules.insert(SYS_ioprio_set, vec![is_not(0, IOPRIO_WHO_PROCESS)?, is_not(1, 0)?]);
    rules.insert(SYS_prctl, vec![is(0, u64::from(u32::MAX), PR_SCHED_CORE)?]);
    let namespaces = NAMESPACES.map(|flag| u64::from(flag.unsigned_abs()));
    rules.insert(SYS_clone, namespaces.into_iter().map(|flag| is(0, flag, flag)).collect::<Result<_, _>>()?);
    if network == Network::None {
        rules.insert(SYS_socket, Vec::new());
        // An end of such a pair can be connected to something else, or send to any path.
        let loose = [SOCK_DGRAM, SOCK_RAW].map(|kind| is(1, SOCKET_TYPE, u64::from(kind.unsigned_abs())));
        let mut of_pairs = vec![is_not(0, u64::from(AF_UNIX.unsigned_abs()))?];
        of_pairs.extend(loose.into_iter().collect::<Result<Vec<_>, _>>()?);
        rules.insert(SYS_socketpair, of_pairs);
    }
    Ok(rules)
}

/// The calls that could end or stop one of the `guarded` processes and threads. Each leads its own process group.
fn signals(guarded: &[Pid]) -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let is = |index: u8, value: i32| {
        let value = u64::from(value.cast_unsigned());
        SeccompCondition::new(index, Width::Dword, Compare::MaskedEq(u64::from(u32::MAX)), value)
    };
    let only = |index: u8, value: i32| SeccompRule::new(vec![is(index, value)?]);
    let each = |index: u8| guarded.iter().map(|process| only(index, process.as_raw())).collect::<Result<Vec<_>, _>>();
    let mut rules = BTreeMap::new();
    let groups = guarded.iter().map(|process| only(0, -process.as_raw()));
    // And nobody signals every process that there is.
    let mut by_process = groups.chain([only(0, -1)]).collect::<Result<Vec<_>, _>>()?;
    by_process.extend(each(0)?);
    rules.insert(SYS_kill, by_process);
    // A call without rules would always be refused.
    if !guarded.is_empty() {
        rules.insert(SYS_tgkill, each(0)?);
        rules.insert(SYS_tkill, each(0)?);
        // Into the group of a guarded process, which a signal to the own group then reaches.
        rules.insert(SYS_setpgid, each(1)?);
    }
    // The kernel sends this signal for a file to any process of the user. Others than these two are blocked there.
    let by_file = |signal: i32| SeccompRule::new(vec![is(1, F_SETSIG)?, is(2, signal)?]);
    rules.insert(SYS_fcntl, vec![by_file(SIGKILL)?, by_file(SIGSTOP)?]);
    Ok(rules)
}
