//! A gateway process whose scripts make system calls (`attempt.c`), and the results of those calls.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::Command,
};

use nix::unistd::Uid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    Reply, TOKEN, TestApp,
    binary::Gateway,
    wire::{argo_request, exchange},
};

/// The name, number and arguments of a call as `attempt.c` reads them, and the expected error. Without the filter each call has
/// another result.
pub(super) type Call = (&'static str, i64, &'static str, i32);

/// Compiles `attempt.c` into `folder`, executable by everybody.
fn compile(folder: &Path) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/script/attempt.c");
    let compiled = Command::new("cc").args(["-Wall", "-o", "attempt", source]).current_dir(folder).status();
    assert!(compiled.unwrap().success(), "Rust's linker is missing");
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The program and arguments that make `calls`.
pub(super) fn command(calls: &[Call]) -> Value {
    let made = calls.iter().map(|(name, number, arguments, _)| format!("{name}={number},{arguments}"));
    ["./attempt".to_owned()].into_iter().chain(made).collect()
}

/// A route that shows whether the gateway still works.
pub(super) fn next() -> (&'static str, Value) {
    ("next", json!({"command": ["echo", "[]"]}))
}

/// A gateway process with a route for each of `scripts`.
pub(super) struct Served {
    pub gateway: Gateway,
    _folder: TempDir,
}

impl Served {
    /// `user`: the gateway's user, if it is not the user of the test.
    pub(super) fn new(scripts: &[(&str, Value)], user: Option<u32>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        compile(folder.path());
        let routes = scripts.iter().map(|(name, script)| {
            let mut script = script.clone();
            script["allow"] = json!({"read": ["."]});
            json!({"name": name, "backend": {"script": script}, "cache": {"ttl": "0s"}})
        });
        let routes: Value = routes.collect();
        let (file, program) = (folder.path().join("gateway.yaml"), folder.path().join("gateway"));
        let server = "server: { listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", drain: 0s }\n";
        fs::write(&file, format!("{server}{}routes: {routes}\n", TestApp::auth())).unwrap();
        // Another user may have no access to the build folder.
        let built = env!("CARGO_BIN_EXE_appset-gateway");
        fs::hard_link(built, &program).or_else(|_| fs::copy(built, &program).map(drop)).unwrap();
        let mut command = Command::new(program);
        command.arg("serve").arg("-c").arg(file);
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        Self { gateway: Gateway::start(&mut command), _folder: folder }
    }

    pub(super) async fn ask(&self, route: &str) -> Reply {
        let path = format!("/{route}/api/v1/getparams.execute");
        exchange(self.gateway.address, &argo_request(&path, TOKEN, b"{}")).await
    }

    /// The gateway's state that another process could change.
    pub(super) fn state(&self) -> [String; 3] {
        let process = format!("/proc/{}", self.gateway.id());
        let read = |file: &str| fs::read_to_string(format!("{process}/{file}")).unwrap();
        let (stat, status) = (read("stat"), read("status"));
        // proc(5): nice is the 19th field, the first after the name is the third.
        let nice = stat.rsplit_once(") ").unwrap().1.split(' ').nth(16).unwrap().to_owned();
        let allowed = status.lines().filter(|line| line.contains("_allowed")).collect::<Vec<_>>().join("\n");
        [read("limits"), nice, allowed]
    }

    /// Fails unless each call of the route has its expected error, and the gateway's state is unchanged.
    pub(super) async fn assert_calls(&self, route: &str, calls: &[Call], what: &str) {
        let before = self.state();
        let reply = self.ask(route).await;
        assert_eq!(reply.status, 200, "{what}: {}", reply.text());
        let set = reply.json()["output"]["parameters"][0].clone();
        let wrong: Vec<String> = calls
            .iter()
            .filter(|(name, .., error)| set[*name].as_str().and_then(|text| text.parse().ok()) != Some(*error))
            .map(|(name, .., error)| format!("{name}: {} instead of {error}", set[name]))
            .collect();
        assert!(wrong.is_empty(), "{what}: {wrong:#?}");
        assert_eq!(self.state(), before, "{what}");
        assert_eq!(self.ask("next").await.sets(), "[]", "{what}");
    }
}

/// The users that run the gateway: the test's own user, and an ordinary user if the test runs as root.
pub(super) fn users() -> Vec<Option<u32>> {
    if Uid::effective().is_root() { vec![None, Some(65534)] } else { vec![None] }
}
