//! All processes of a script end with its run, whoever is killed: its launcher, the supervisor, the gateway, or two of them at once. What
//! scripts leave in their work folders ends no gateway.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use nix::{
    libc::{self, ENOSYS},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use super::contained::RUNNER;
use crate::support::{
    Reply, TOKEN, TestApp,
    binary::{self, Gateway},
    kernel::failing,
    processes::{all_gone, marker, processes},
    wire::{argo_request, exchange, exchange_admin},
};

/// A folder in memory if there is one: some disks need milliseconds to remove a folder. It is removed without recursion, which a failing test
/// would otherwise end with.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap().keep())
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = Command::new("rm").arg("-rf").arg(&self.0).status();
    }
}

/// A gateway process with the route `s`, which runs a shell, and the route `next`.
struct Scene {
    gateway: Gateway,
    /// The folder of its temporary files.
    temporary: PathBuf,
    _folder: Folder,
}

impl Scene {
    /// The route `s` runs `line`.
    fn new(line: &str) -> Self {
        Self::within(Folder::new(), line)
    }

    /// The same in a prepared `folder`, whose `tmp` is the folder for temporary files.
    fn within(folder: Folder, line: &str) -> Self {
        let read = json!([".", python().1]);
        let script = |line: &str| json!({"command": ["sh", "-c", line], "timeout": "100s", "allow": {"read": read}});
        let route = |name: &str, line: &str| json!({"name": name, "deadline": "110s", "backend": {"script": script(line)}, "cache": {"ttl": "0s"}});
        let routes = json!([route("s", line), route("next", "echo '[]'")]);
        let server = "server: { listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", drain: 0s }\n";
        let (file, temporary) = (folder.path().join("gateway.yaml"), folder.path().join("tmp"));
        fs::write(&file, format!("{server}{}routes: {routes}\n", TestApp::auth())).unwrap();
        fs::create_dir_all(&temporary).unwrap();
        let gateway = Gateway::start(binary::command().arg("serve").arg("-c").arg(file).env("TMPDIR", &temporary));
        Self { gateway, temporary, _folder: folder }
    }

    async fn ask(&self, route: &str) -> Reply {
        let request = argo_request(&format!("/{route}/api/v1/getparams.execute"), TOKEN, b"{}");
        timeout(Duration::from_mins(2), exchange(self.gateway.address, &request)).await.expect("an answer")
    }

    /// Calls the route `s`, and waits until `count` processes with `marker` run.
    async fn begun(&self, marker: &str, count: usize) -> JoinHandle<Reply> {
        let (address, request) = (self.gateway.address, argo_request("/s/api/v1/getparams.execute", TOKEN, b"{}"));
        let call = tokio::spawn(async move { exchange(address, &request).await });
        let until = Instant::now() + Duration::from_secs(20);
        while processes(marker).len() < count {
            assert!(Instant::now() < until, "the script does not begin");
            sleep(Duration::from_millis(5)).await;
        }
        call
    }

    /// The supervisor, and the launchers that have a program.
    fn launchers(&self) -> (Pid, Vec<Pid>) {
        let supervisor = *children(self.gateway.id()).iter().find(|child| is_launcher(**child)).unwrap();
        let launchers = children(supervisor).into_iter().filter(|child| !children(*child).is_empty());
        (pid(supervisor), launchers.map(pid).collect())
    }
}

/// Python's program, and the folder that a script must be allowed to read to run it. That may be outside of the system's folders.
fn python() -> (String, String) {
    let names = "import sys; print(sys.executable); print(sys.base_prefix)";
    let printed = Command::new("python3").args(["-c", names]).output().unwrap().stdout;
    let (program, folder) = std::str::from_utf8(&printed).unwrap().trim_end().split_once('\n').unwrap();
    (program.to_owned(), folder.to_owned())
}

fn pid(process: u32) -> Pid {
    Pid::from_raw(i32::try_from(process).unwrap())
}

fn children(process: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let listed = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    listed.flat_map(|list| list.split_ascii_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<u32>>()).collect()
}

fn is_launcher(process: u32) -> bool {
    let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).any(|argument| argument == b"launch")
}

/// A script that stays, with a child in a session of its own.
fn staying(marker: &str) -> String {
    format!("trap '' TERM; setsid sh -c \"trap '' TERM; sleep {marker}; sleep {marker}\" & exec sleep {marker}")
}

/// A script that tries everything to end its launcher and the process above that.
const ATTACK: &str = r#"
import ctypes, fcntl, os, signal
launcher = os.getppid()
above = int(open("/proc/%d/stat" % launcher).read().rsplit(") ", 1)[1].split()[1])
call = ctypes.CDLL(None, use_errno=True).syscall
TKILL, TGKILL = {"x86_64": (200, 234), "aarch64": (130, 131)}[os.uname().machine]
def raw(*arguments):
    if call(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "")
attempts = []
for process in (launcher, above):
    for thread in [process] + [int(thread) for thread in os.listdir("/proc/%d/task" % process)]:
        attempts += [
            lambda thread=thread: os.kill(thread, 9),
            lambda thread=thread: os.kill(thread, 19),
            lambda thread=thread: raw(TKILL, thread, 9),
            lambda thread=thread, process=process: raw(TGKILL, process, thread, 9),
        ]
    attempts += [lambda process=process: os.kill(-process, 9), lambda process=process: os.setpgid(0, process)]
# Nothing is sent: on a kernel without landlock it would reach whoever runs this test.
attempts += [lambda: os.kill(-1, 0)]
attempts += [lambda signal=signal: fcntl.fcntl(0, 10, signal) for signal in (9, 19)]
missed = 0
for attempt in attempts:
    try:
        attempt()
        missed += 1
    except PermissionError:
        pass
print('[{"tried": "%d", "missed": "%d"}]' % (len(attempts), missed))
"#;

#[tokio::test]
async fn a_script_cannot_end_the_processes_that_contain_it() {
    for missing in [&[][..], &[libc::SYS_landlock_create_ruleset]] {
        let marker = marker();
        let folder = Folder::new();
        fs::write(folder.path().join("attack.py"), ATTACK).unwrap();
        let line = format!("setsid sleep {marker} > /dev/null 2>&1 & exec {} attack.py", python().0);
        let scene = failing(missing, ENOSYS, || Scene::within(folder, &line));
        let reply = scene.ask("s").await;
        assert_eq!(reply.status, 200, "{missing:?}: {}", reply.text());
        let set = reply.json()["output"]["parameters"][0].clone();
        assert!(set["missed"] == "0" && set["tried"] != "0", "{missing:?}: {set}");
        all_gone(&marker, "an attack on the launcher").await;
        assert_eq!(scene.ask("next").await.sets(), "[]");
    }
}

#[tokio::test]
async fn what_a_killed_launcher_leaves_is_ended() {
    for missing in [&[][..], &[libc::SYS_landlock_create_ruleset]] {
        let marker = marker();
        let scene = failing(missing, ENOSYS, || Scene::new(&staying(&marker)));
        let call = scene.begun(&marker, 3).await;
        let (_, launchers) = scene.launchers();
        kill(launchers[0], Signal::SIGKILL).unwrap();
        assert_eq!(call.await.unwrap().status, 502);
        all_gone(&marker, "a killed launcher").await;
        assert_eq!(scene.ask("next").await.sets(), "[]");
    }
}

#[tokio::test]
async fn fast_forking_does_not_outlive_its_launcher() {
    let (folder, marker) = (Folder::new(), marker());
    fs::write(folder.path().join("run.c"), RUNNER).unwrap();
    let compiled = Command::new("cc").args(["-o", "run", "run.c"]).current_dir(folder.path()).status();
    assert!(compiled.unwrap().success(), "Rust's linker is missing");
    let scene = Scene::within(folder, &format!("exec nice -n 19 ./run stay {marker}"));
    let call = scene.begun(&marker, 2).await;
    kill(scene.launchers().1[0], Signal::SIGKILL).unwrap();
    assert_eq!(call.await.unwrap().status, 502);
    all_gone(&marker, "a killed launcher").await;
}

#[tokio::test]
async fn a_killed_supervisor_is_replaced() {
    let marker = marker();
    let scene = Scene::new(&format!("setsid sleep {marker} > /dev/null 2>&1 & sleep 1; echo '[]'"));
    let call = scene.begun(&marker, 1).await;
    let (supervisor, _) = scene.launchers();
    kill(supervisor, Signal::SIGKILL).unwrap();
    let reply = call.await.unwrap();
    assert_eq!(reply.sets(), "[]", "{}", reply.text());
    all_gone(&marker, "a killed supervisor").await;
    assert_eq!(scene.ask("next").await.sets(), "[]");
    assert_ne!(scene.launchers().0, supervisor);
}

#[tokio::test]
async fn scripts_end_with_a_killed_gateway_whatever_else_is_killed() {
    for also in ["nothing", "the launcher", "the supervisor"] {
        let marker = marker();
        let scene = Scene::new(&staying(&marker));
        let call = scene.begun(&marker, 3).await;
        let (supervisor, launchers) = scene.launchers();
        match also {
            "the launcher" => kill(launchers[0], Signal::SIGKILL).unwrap(),
            "the supervisor" => kill(supervisor, Signal::SIGKILL).unwrap(),
            _ => {}
        }
        scene.gateway.signal(Signal::SIGKILL);
        call.abort();
        all_gone(&marker, &format!("killed: the gateway and {also}")).await;
        let until = Instant::now() + Duration::from_secs(20);
        while launchers.iter().chain([&supervisor]).any(|process| is_launcher(process.as_raw().cast_unsigned())) {
            assert!(Instant::now() < until, "a launcher or the supervisor stays");
            sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Makes folders in each other, deeper than a path can name, and forbids access to some. It begins with the deepest, and goes up by 200:
/// the kernel checks each path of a contained program up to its root, so to go down would take time with the square of the depth.
const NESTING: &str = r#"
import os, sys
os.chdir(sys.argv[1])
os.mkdir(b"\xffn")
for n in range(int(sys.argv[2]) // 200):
    inner = b"top" + b"/\xffn" * 199
    os.makedirs(inner)
    bottom = os.open(inner, os.O_RDONLY)
    if n % 25 == 24:
        os.chmod(b"top/\xffn", 0)
    os.rename(b"\xffn", b"\xffn", dst_dir_fd=bottom)
    os.close(bottom)
    os.rename(b"top", b"\xffn")
print("[]")
"#;

/// The folders of the gateways in `temporary` that hold anything but their locks and empty work folders.
fn filled(temporary: &Path) -> Vec<PathBuf> {
    let of = |folder: &Path| {
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let work = of(temporary).into_iter().flat_map(|root| of(&root));
    work.filter(|folder| folder.is_dir() && !of(folder).is_empty()).collect()
}

async fn until_empty(temporary: &Path) {
    let until = Instant::now() + Duration::from_mins(5);
    while !filled(temporary).is_empty() {
        assert!(Instant::now() < until, "it stays: {:?}", filled(temporary));
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn folders_without_end_are_removed() {
    let folder = Folder::new();
    fs::write(folder.path().join("nest.py"), NESTING).unwrap();
    let scene = Scene::within(folder, &format!("exec {} nest.py $TMPDIR 20000", python().0));
    for _ in 0..2 {
        let reply = scene.ask("s").await;
        assert_eq!(reply.sets(), "[]", "{}", reply.text());
        assert_eq!(scene.ask("next").await.sets(), "[]");
    }
    until_empty(&scene.temporary).await;
    // The launcher is killed before it has emptied the folder.
    let (address, request) = (scene.gateway.address, argo_request("/s/api/v1/getparams.execute", TOKEN, b"{}"));
    let call = tokio::spawn(async move { exchange(address, &request).await });
    let until = Instant::now() + Duration::from_secs(20);
    while filled(&scene.temporary).is_empty() {
        assert!(Instant::now() < until);
        sleep(Duration::from_millis(1)).await;
    }
    let (_, launchers) = scene.launchers();
    for launcher in &launchers {
        kill(*launcher, Signal::SIGKILL).unwrap();
    }
    let _ = call.await.unwrap();
    until_empty(&scene.temporary).await;
    assert_eq!(scene.ask("next").await.sets(), "[]");
}

/// What a killed gateway left, and what others made of it, neither ends the next gateway nor holds it up.
#[tokio::test]
async fn a_shared_folder_for_temporary_files_harms_nobody() {
    let folder = Folder::new();
    let temporary = folder.path().join("tmp");
    let root = |name: &str| temporary.join(format!("appset-gateway-{name}"));
    for name in ["1-left", "2-fifo", "3-link", "4-folder"] {
        fs::create_dir_all(root(name).join("0")).unwrap();
    }
    fs::write(root("1-left").join("lock"), "").unwrap();
    nix::unistd::mkfifo(&root("2-fifo").join("lock"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    nix::unistd::mkfifo(&root("5-fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::os::unix::fs::symlink("/dev/zero", root("3-link").join("lock")).unwrap();
    fs::create_dir(root("4-folder").join("lock")).unwrap();
    let nest = ["-c", NESTING, root("1-left").join("0").to_str().unwrap(), "20000"].map(str::to_owned);
    assert!(Command::new("python3").args(nest).status().unwrap().success());
    let mut scene = Scene::within(folder, "echo '[]'");
    assert_eq!(scene.ask("s").await.sets(), "[]");
    let live = exchange_admin(scene.gateway.admin, b"GET /livez HTTP/1.1\r\nHost: g\r\n\r\n");
    assert_eq!(timeout(Duration::from_secs(10), live).await.expect("an answer").status, 200);
    let until = Instant::now() + Duration::from_mins(5);
    while root("1-left").exists() {
        assert!(Instant::now() < until, "it stays");
        sleep(Duration::from_millis(50)).await;
    }
    assert!(["2-fifo", "3-link", "4-folder", "5-fifo"].iter().all(|name| root(name).exists()));
    scene.gateway.signal(Signal::SIGTERM);
    assert!(scene.gateway.wait(Duration::from_secs(20)).0.success());
}
