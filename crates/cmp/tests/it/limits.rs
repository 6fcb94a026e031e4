//! Runs that break a limit, and many runs at once.

use std::{fs, os::unix::net::UnixStream, thread::sleep, time::Duration};

use crate::support::{Gateway, script};

#[test]
fn the_limit_is_named() {
    let config = "plugins:\n- {config: demo, timeout: 2s, maxOutput: 1MiB, limits: {fileSize: 1MiB}}\n";
    for (text, expected) in [
        (
            "trap '' TERM; echo waiting >&2; sleep 1000",
            "was not done in time, stopped by its limit of 2 s (`timeout`): waiting",
        ),
        ("head -c 3000000 /dev/zero", "wrote more than 1.0 MiB to stdout (`maxOutput`), stopped"),
        ("exec head -c 3000000 /dev/zero > large", "(`limits.fileSize`)"),
        ("kill -KILL $$", "was ended by SIGKILL"),
        ("(sleep 1000 &) ; (setsid sleep 1000 &) ; echo 'a: b'", "left processes behind that were killed"),
        ("i=0; while [ $i -lt 200 ]; do sleep 1000 & i=$((i+1)); done; sleep 1000", "was not done in time"),
    ] {
        let gateway = Gateway::serve(config, &[("demo", &script(text))]);
        gateway.file("x", "");
        let answer = gateway.ask("GenerateManifest", ".", &[]);
        assert!(answer.error().contains(expected), "{answer:?}: {expected}");
    }
}

/// A program that meets one of these limits gets an error, or is killed without a word.
#[test]
fn limits_that_the_kernel_sets_are_named() {
    for (limits, text, expected) in [
        ("cpu: 1s", "while :; do :; done", "perhaps it used more processor time than `limits.cpu`"),
        ("cpu: 1s", "sh -c 'while :; do :; done'", "perhaps it used more processor time than `limits.cpu`"),
        ("memory: 64MiB", "exec python3 -c \"b'x' * 200000000\"", "perhaps by `limits.memory`: "),
        (
            "openFiles: 64",
            "exec python3 -c \"[open('/dev/null') for _ in range(99)]; x = len(a)\"",
            "perhaps by `limits.openFiles`: ",
        ),
        (
            "fileSize: 1MiB",
            "exec python3 -c \"open('x', 'wb').write(b'x' * 3000000)\"",
            "perhaps by `limits.fileSize`: ",
        ),
    ] {
        // A shell finds Python where the system's files may not be.
        let config = format!("plugins:\n- {{config: demo, limits: {{{limits}}}, files: {{read: [/]}}}}\n");
        let gateway = Gateway::serve(&config, &[("demo", &script(text))]);
        gateway.file("y", "");
        let answer = gateway.ask("GenerateManifest", ".", &[]);
        assert!(answer.error().contains(expected), "{limits}: {answer:?}");
    }
}

/// TERM comes first, so that a run can tidy up what it holds elsewhere.
#[test]
fn a_run_that_takes_too_long_may_tidy_up() {
    let text = "trap 'echo > $SHARED/tidy; exit 1' TERM; sleep 1000 & wait";
    let config = "plugins:\n- {config: demo, timeout: 2s, files: {write: [.]}}\n";
    let mut gateway = Gateway::serve(config, &[("demo", &script(text))]);
    gateway.file("x", "");
    assert!(gateway.ask("GenerateManifest", ".", &[]).error().contains("was not done in time"));
    let tidy = gateway.path("tidy");
    gateway.wait_until(|| tidy.exists());
}

/// Each process starts the next one and ends, so whoever looks for it comes too late.
#[test]
fn processes_that_fork_for_ever_are_ended() {
    let text = "f() { echo >> $SHARED/beats; (sleep 0.02; f) & }; f; sleep 1000";
    let config = "plugins:\n- {config: demo, timeout: 2s, files: {write: [.]}}\n";
    let gateway = Gateway::serve(config, &[("demo", &script(text))]);
    gateway.file("x", "");
    assert!(gateway.ask("GenerateManifest", ".", &[]).error().contains("was not done in time"));
    let beats = || fs::read(gateway.path("beats")).unwrap().len();
    let count = beats();
    assert!(count > 3, "{count}");
    sleep(Duration::from_secs(1));
    assert_eq!(beats(), count);
}

/// argocd-cmp-server documents the variable and ignores it.
#[test]
fn the_variable_of_argo_cd_limits_a_run() {
    for (value, limit) in [("1s", "1 s"), ("500ms", "0.5 s")] {
        let gateway = Gateway::sidecar_after(&format!("export ARGOCD_EXEC_TIMEOUT={value}"), &script("sleep 1000"));
        gateway.file("x", "");
        let answer = gateway.ask("GenerateManifest", ".", &[]);
        assert!(answer.error().contains(&format!("stopped by its limit of {limit} (`timeout`)")), "{answer:?}");
    }
}

/// At the limit of open files no connection can be accepted, and Argo CD waits for ever for one.
#[test]
fn shells_limit_of_open_files_does_not_count() {
    let gateway = Gateway::sidecar_after("ulimit -Sn 200", &script("echo 'a: b'"));
    gateway.file("x", "");
    let socket = gateway.socket("demo-v1.0");
    let open: Vec<_> = (0..300).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    assert_eq!(gateway.ask("GenerateManifest", ".", &["-ready", "10s"]).manifests(), ["a: b\n"]);
    drop(open);
}

/// Some old programs close all numbers of files up to the soft limit.
#[test]
fn a_run_has_the_limit_of_open_files_that_the_server_began_with() {
    let gateway = Gateway::sidecar_after("ulimit -Sn 200", &script("echo \"a: $(ulimit -Sn), $(ulimit -Hn)\""));
    gateway.file("x", "");
    let hard = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap().1;
    assert_eq!(gateway.ask("GenerateManifest", ".", &[]).manifests(), [format!("a: 200, {hard}\n")]);
    let config = "plugins:\n- {config: demo, limits: {openFiles: 77}}\n";
    let gateway = Gateway::serve(config, &[("demo", &script("echo \"a: $(ulimit -Sn), $(ulimit -Hn)\""))]);
    gateway.file("x", "");
    assert_eq!(gateway.ask("GenerateManifest", ".", &[]).manifests(), ["a: 77, 77\n"]);
}

/// The reason comes 100 ms before the client gives up, which a busy machine may miss.
#[test]
fn the_callers_deadline_counts_and_its_reason_arrives() {
    let gateway = Gateway::sidecar(&script("sleep 1000"));
    gateway.file("x", "");
    let is_told =
        |_| gateway.ask("GenerateManifest", ".", &["-timeout", "3s"]).error().contains("the caller's deadline");
    assert!((0..5).any(is_told));
}

#[test]
fn no_more_run_at_once_than_configured() {
    let text = "mkdir $SHARED/runs/$$; ls $SHARED/runs | wc -l >> $SHARED/counts; sleep 0.2; rmdir $SHARED/runs/$$; echo 'a: b'";
    let gateway =
        Gateway::serve("plugins:\n- {config: demo, concurrency: 4, files: {write: [.]}}\n", &[("demo", &script(text))]);
    fs::create_dir(gateway.path("runs")).unwrap();
    gateway.file("x", "");
    let answers = gateway.ask_all("GenerateManifest", ".", &["-n", "50", "-timeout", "120s"]);
    assert_eq!(answers.iter().filter(|answer| answer.manifests() == ["a: b\n"]).count(), 50);
    let counts = fs::read_to_string(gateway.path("counts")).unwrap();
    let counts: Vec<usize> = counts.lines().map(|line| line.trim().parse().unwrap()).collect();
    assert!(counts.len() == 50 && counts.iter().all(|count| *count <= 4), "{counts:?}");
}

/// A run sees its own tree, and neither other trees nor other files of the machine.
#[test]
fn a_contained_run_sees_only_its_own() {
    let text = "cat $SHARED/secret 2>/dev/null || true; ls $SHARED/work/_cmp_server/trees 2>/dev/null || true; echo \"a: $(cat x)\"";
    let gateway = Gateway::serve("plugins:\n- config: demo\n", &[("demo", &script(text))]);
    gateway.file("x", "own");
    fs::write(gateway.path("secret"), "secret: x\n").unwrap();
    assert_eq!(gateway.ask("GenerateManifest", ".", &[]).manifests(), ["a: own\n"]);
}
