//! System calls that could affect more than the script: each fails, and the gateway survives. As root and as an ordinary user,
//! with and without landlock.

use nix::{
    libc::{self, EBADE, ENOSYS, EPERM, SIGSYS},
    unistd::Uid,
};
use serde_json::json;

use super::attempts::{Call, Served, command, next, users};
use crate::support::{kernel::failing, upstream::refused};

/// The gateway's process id, in a shell of a script: above the launcher is the supervisor.
const GATEWAY: &str = "$(cut -d' ' -f4 /proc/$(cut -d' ' -f4 /proc/$PPID/stat)/stat)";

/// Calls that change or read another process.
const PROCESSES: &[Call] = &[
    ("prlimit64 cpu", libc::SYS_prlimit64, "g,0,z,0", EPERM),
    ("prlimit64 files", libc::SYS_prlimit64, "g,7,z,0", EPERM),
    ("prlimit64 launcher", libc::SYS_prlimit64, "l,7,z,0", EPERM),
    ("setpriority", libc::SYS_setpriority, "0,g,19", EPERM),
    ("setpriority group", libc::SYS_setpriority, "1,0,19", EPERM),
    // For a user without processes, so that a call that is not refused harms nobody.
    ("setpriority user", libc::SYS_setpriority, "2,4000000,19", EPERM),
    ("sched_setaffinity", libc::SYS_sched_setaffinity, "g,8,z", EPERM),
    ("sched_setscheduler", libc::SYS_sched_setscheduler, "g,0,z", EPERM),
    ("sched_setparam", libc::SYS_sched_setparam, "g,z", EPERM),
    ("sched_setattr", libc::SYS_sched_setattr, "g,z,0", EPERM),
    ("ioprio_set", libc::SYS_ioprio_set, "1,g,0x6000", EPERM),
    ("ioprio_set user", libc::SYS_ioprio_set, "3,4000000,0x6000", EPERM),
    ("ptrace", libc::SYS_ptrace, "0,0,0,0", EPERM),
    ("process_vm_readv", libc::SYS_process_vm_readv, "s,z,1,z,1,0", EPERM),
    ("process_vm_writev", libc::SYS_process_vm_writev, "s,z,1,z,1,0", EPERM),
    ("process_madvise", libc::SYS_process_madvise, "-1,z,1,4,0", EPERM),
    ("process_mrelease", libc::SYS_process_mrelease, "-1,0", EPERM),
    ("pidfd_open", libc::SYS_pidfd_open, "s,0", EPERM),
    ("pidfd_open gateway", libc::SYS_pidfd_open, "g,0", EPERM),
    ("pidfd_send_signal", libc::SYS_pidfd_send_signal, "-1,0,0,0", EPERM),
    ("pidfd_getfd", libc::SYS_pidfd_getfd, "-1,0,0", EPERM),
    ("kcmp", libc::SYS_kcmp, "s,s,1,0,0", EPERM),
    ("migrate_pages", libc::SYS_migrate_pages, "-1,0,0,0", EPERM),
    ("move_pages", libc::SYS_move_pages, "-1,0,0,0,0,0", EPERM),
    ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo, "s,0,z", EPERM),
    ("rt_tgsigqueueinfo", libc::SYS_rt_tgsigqueueinfo, "s,s,0,z", EPERM),
    // PR_SCHED_CORE, which can share a core with any process.
    ("prctl core scheduling", libc::SYS_prctl, "62,99,0,0,0", EPERM),
    ("userfaultfd", libc::SYS_userfaultfd, "1", EPERM),
    ("unshare", libc::SYS_unshare, "0", EPERM),
    ("setns", libc::SYS_setns, "-1,0", EPERM),
    // Each namespace flag alone, with a flag that makes the call invalid, so that it never takes effect.
    ("clone mounts", libc::SYS_clone, "0x00020a00,0,0,0,0", EPERM),
    ("clone cgroup", libc::SYS_clone, "0x02000800,0,0,0,0", EPERM),
    ("clone uts", libc::SYS_clone, "0x04000800,0,0,0,0", EPERM),
    ("clone ipc", libc::SYS_clone, "0x08000800,0,0,0,0", EPERM),
    ("clone user", libc::SYS_clone, "0x10000800,0,0,0,0", EPERM),
    ("clone pid", libc::SYS_clone, "0x20000800,0,0,0,0", EPERM),
    ("clone net", libc::SYS_clone, "0x40000800,0,0,0,0", EPERM),
    ("clone3", libc::SYS_clone3, "z,64", ENOSYS),
];

/// Signals to the gateway. The filter cannot tell whose process it is, so it lets them pass. Landlock refuses them.
const SIGNALS: &[Call] = &[
    ("kill", libc::SYS_kill, "g,18", EPERM),
    ("tkill", libc::SYS_tkill, "g,18", EPERM),
    ("tgkill", libc::SYS_tgkill, "g,g,18", EPERM),
];

/// Signals to the processes that end the script's.
const GUARDS: &[Call] = &[
    ("kill launcher", libc::SYS_kill, "l,9", EPERM),
    ("kill launcher's group", libc::SYS_kill, "n,9", EPERM),
    ("tkill launcher", libc::SYS_tkill, "l,9", EPERM),
    ("tgkill launcher", libc::SYS_tgkill, "l,l,9", EPERM),
    ("kill supervisor", libc::SYS_kill, "p,9", EPERM),
    ("tgkill supervisor", libc::SYS_tgkill, "p,p,9", EPERM),
    // No signal, so that a call that is not refused harms nobody.
    ("kill all", libc::SYS_kill, "-1,0", EPERM),
    ("setpgid", libc::SYS_setpgid, "0,l", EPERM),
    ("F_SETSIG kill", libc::SYS_fcntl, "0,10,9", EPERM),
    ("F_SETSIG stop", libc::SYS_fcntl, "0,10,19", EPERM),
];

/// Memory that stays after all processes.
const MEMORY: &[Call] = &[
    ("shmget", libc::SYS_shmget, "0,4096,0x380", EPERM),
    ("shmat", libc::SYS_shmat, "0,0,0", EPERM),
    ("shmctl", libc::SYS_shmctl, "0,2,z", EPERM),
    ("shmdt", libc::SYS_shmdt, "1", EPERM),
    ("semget", libc::SYS_semget, "0,1,0x380", EPERM),
    ("semop", libc::SYS_semop, "0,z,1", EPERM),
    ("semtimedop", libc::SYS_semtimedop, "0,z,1,z", EPERM),
    ("semctl", libc::SYS_semctl, "0,0,2,z", EPERM),
    ("msgget", libc::SYS_msgget, "0,0x380", EPERM),
    ("msgsnd", libc::SYS_msgsnd, "0,z,1,0x800", EPERM),
    ("msgrcv", libc::SYS_msgrcv, "0,z,1,0,0x800", EPERM),
    ("msgctl", libc::SYS_msgctl, "0,2,z", EPERM),
    ("mq_open", libc::SYS_mq_open, "z,0x40,0600,0", EPERM),
    ("mq_unlink", libc::SYS_mq_unlink, "z", EPERM),
    ("mq_timedsend", libc::SYS_mq_timedsend, "-1,z,0,0,0", EPERM),
    ("mq_timedreceive", libc::SYS_mq_timedreceive, "-1,z,0,0,0", EPERM),
    ("mq_notify", libc::SYS_mq_notify, "-1,0", EPERM),
    ("mq_getsetattr", libc::SYS_mq_getsetattr, "-1,0,0", EPERM),
];

/// Calls that usually need capabilities. Where a call would fail with [`EBADE`] otherwise, the result proves that the filter
/// refused it.
const MACHINE: &[Call] = &[
    ("perf_event_open", libc::SYS_perf_event_open, "z,0,-1,-1,0", EPERM),
    ("bpf", libc::SYS_bpf, "-1,z,8", EPERM),
    ("io_uring_setup", libc::SYS_io_uring_setup, "1,z", EPERM),
    ("io_uring_enter", libc::SYS_io_uring_enter, "-1,0,0,0,0,0", EPERM),
    ("io_uring_register", libc::SYS_io_uring_register, "-1,0,0,0", EPERM),
    ("add_key", libc::SYS_add_key, "0,0,0,0,0", EPERM),
    ("keyctl", libc::SYS_keyctl, "0,-3,0", EPERM),
    ("request_key", libc::SYS_request_key, "0,0,0,0", EPERM),
    ("mount", libc::SYS_mount, "z,z,z,0,0", EPERM),
    ("umount2", libc::SYS_umount2, "z,0", EPERM),
    ("pivot_root", libc::SYS_pivot_root, "z,z", EPERM),
    ("chroot", libc::SYS_chroot, "z", EPERM),
    ("open_tree", libc::SYS_open_tree, "-1,z,0", EPERM),
    ("open_tree_attr", 467, "-1,z,0,0,0", EPERM),
    ("move_mount", libc::SYS_move_mount, "-1,z,-1,z,0", EPERM),
    ("fsopen", libc::SYS_fsopen, "z,0", EPERM),
    ("fsconfig", libc::SYS_fsconfig, "-1,0,z,z,0", EPERM),
    ("fsmount", libc::SYS_fsmount, "-1,0,0", EPERM),
    ("fspick", libc::SYS_fspick, "-1,z,0", EPERM),
    ("mount_setattr", libc::SYS_mount_setattr, "-1,z,0,z,32", EPERM),
    ("open_by_handle_at", libc::SYS_open_by_handle_at, "-1,z,0", EPERM),
    ("fanotify_init", libc::SYS_fanotify_init, "0,0", EPERM),
    ("quotactl", libc::SYS_quotactl, "0,0,0,0", EPERM),
    ("quotactl_fd", libc::SYS_quotactl_fd, "-1,0,0,0", EPERM),
    ("swapon", libc::SYS_swapon, "z,0", EPERM),
    ("swapoff", libc::SYS_swapoff, "z", EPERM),
    ("reboot", libc::SYS_reboot, "0,0,0,0", EPERM),
    ("kexec_load", libc::SYS_kexec_load, "0,-1,0,-1", EPERM),
    ("init_module", libc::SYS_init_module, "z,0,z", EPERM),
    ("finit_module", libc::SYS_finit_module, "-1,z,0", EPERM),
    ("delete_module", libc::SYS_delete_module, "z,0", EPERM),
    ("acct", libc::SYS_acct, "-1", EPERM),
    ("settimeofday", libc::SYS_settimeofday, "-1,-1", EPERM),
    ("clock_settime", libc::SYS_clock_settime, "0,-1", EPERM),
    ("clock_adjtime", libc::SYS_clock_adjtime, "0,-1", EPERM),
    ("adjtimex", libc::SYS_adjtimex, "-1", EPERM),
    ("sethostname", libc::SYS_sethostname, "-1,1", EPERM),
    ("setdomainname", libc::SYS_setdomainname, "-1,1", EPERM),
    ("a call newer than this filter", 470, "0", ENOSYS),
    ("prlimit64 by its number of x32", 0x4000_0000 + 302, "g,7,z,0", ENOSYS),
];

/// Calls by which programs change themselves.
const OWN: &[Call] = &[
    ("own prlimit64", libc::SYS_prlimit64, "0,7,0,z", 0),
    ("prlimit64 only read", libc::SYS_prlimit64, "g,7,0,z", 0),
    ("own setpriority", libc::SYS_setpriority, "0,0,19", 0),
    ("own sched_setscheduler", libc::SYS_sched_setscheduler, "0,0,z", 0),
    ("own sched_setparam", libc::SYS_sched_setparam, "0,z", 0),
    ("own ioprio_set", libc::SYS_ioprio_set, "1,0,0x6000", 0),
    ("prctl", libc::SYS_prctl, "1,0,0,0,0", 0),
    ("fork", libc::SYS_clone, "17,0,0,0,0", 0),
    ("socket", libc::SYS_socket, "1,1,0", 0),
];

#[tokio::test]
async fn no_system_call_affects_other_processes() {
    let scripts = [
        ("processes", json!({"command": command(PROCESSES)})),
        ("signals", json!({"command": command(SIGNALS)})),
        ("guards", json!({"command": command(GUARDS)})),
        ("memory", json!({"command": command(MEMORY)})),
        ("machine", json!({"command": command(MACHINE)})),
        ("own", json!({"command": command(OWN)})),
        next(),
    ];
    let landlock = [libc::SYS_landlock_create_ruleset];
    let machine: Vec<i64> = MACHINE.iter().map(|(_, number, ..)| *number).collect();
    for user in users() {
        for has_landlock in [true, false] {
            let served = if has_landlock {
                Served::new(&scripts, user)
            } else {
                failing(&landlock, ENOSYS, || failing(&machine, EBADE, || Served::new(&scripts, user)))
            };
            let what = format!("user {user:?}, landlock {has_landlock}");
            for (route, calls) in
                [("processes", PROCESSES), ("guards", GUARDS), ("memory", MEMORY), ("machine", MACHINE), ("own", OWN)]
            {
                served.assert_calls(route, calls, &format!("{route}, {what}")).await;
            }
            let refused = if has_landlock { EPERM } else { 0 };
            let signals = SIGNALS.iter().map(|(name, number, arguments, _)| (*name, *number, *arguments, refused));
            served.assert_calls("signals", &signals.collect::<Vec<Call>>(), &format!("signals, {what}")).await;
        }
    }
}

#[tokio::test]
async fn a_script_cannot_change_the_gateways_limits() {
    let route = |limit: &str| {
        let line = format!("prlimit --pid {GATEWAY} --{limit} && echo '[]'");
        json!({"command": ["sh", "-c", line]})
    };
    let scripts = [("cpu", route("cpu=1:1")), ("files", route("nofile=3:3")), next()];
    for user in users() {
        let served = Served::new(&scripts, user);
        let before = served.state();
        for name in ["cpu", "files"] {
            refused(&served.ask(name).await, 502, "backend_failed", "Operation not permitted");
        }
        assert_eq!(served.state(), before);
        assert_eq!(served.ask("next").await.sets(), "[]");
    }
}

#[tokio::test]
async fn another_user_cannot_signal_the_gateway_or_change_its_files() {
    if !Uid::effective().is_root() {
        return;
    }
    let signal = format!("kill -CONT {GATEWAY}");
    let attempts = [&*signal, "chmod 644 gateway.yaml", "touch gateway.yaml"];
    let line = |before: &str| {
        let all: Vec<String> = attempts.iter().map(|attempt| format!("{before}{attempt}")).collect();
        json!(["sh", "-c", format!("{} && echo '[]'", all.join(" && "))])
    };
    let scripts =
        [("same", json!({"command": line("")})), ("other", json!({"command": line("! "), "user": "65534"})), next()];
    let landlock = [libc::SYS_landlock_create_ruleset];
    let served = failing(&landlock, ENOSYS, || Served::new(&scripts, None));
    for name in ["same", "other"] {
        let reply = served.ask(name).await;
        assert_eq!(reply.status, 200, "{name}: {}", reply.text());
    }
    assert_eq!(served.ask("next").await.sets(), "[]");
}

#[tokio::test]
#[cfg(target_arch = "x86_64")]
async fn a_32_bit_system_call_ends_the_program() {
    let calls = [("foreign", 0, "", SIGSYS)];
    let killed = json!({"command": ["sh", "-c", "kill -SYS $$"]});
    let served = Served::new(&[("s", json!({"command": command(&calls)})), ("killed", killed), next()], None);
    served.assert_calls("s", &calls, "int 0x80").await;
    refused(&served.ask("killed").await, 502, "backend_failed", "32-bit programs");
}
