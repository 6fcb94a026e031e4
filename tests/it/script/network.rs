//! `network: none`: a script reaches no address and no socket file.

use std::{
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram, UnixListener},
    },
};

use nix::libc::{self, ENOSYS, EPERM};
use serde_json::{Value, json};

use super::attempts::{Call, Served, command, next, users};
use crate::support::kernel::failing;

const SOCKETS: &[Call] = &[
    ("unix", libc::SYS_socket, "1,1,0", EPERM),
    ("inet", libc::SYS_socket, "2,1,0", EPERM),
    ("inet datagram", libc::SYS_socket, "2,2,0", EPERM),
    ("netlink", libc::SYS_socket, "16,3,0", EPERM),
    ("pair of datagrams", libc::SYS_socketpair, "1,2,0,z", EPERM),
    ("pair of datagrams with a flag", libc::SYS_socketpair, "1,0x80002,0,z", EPERM),
    ("pair of raw", libc::SYS_socketpair, "1,3,0,z", EPERM),
    ("pair of another family", libc::SYS_socketpair, "30,2,0,z", EPERM),
    ("pair of streams", libc::SYS_socketpair, "1,1,0,z", 0),
    ("pair of packets", libc::SYS_socketpair, "1,5,0,z", 0),
];

/// Tries each way to reach the network, and prints the results.
const CONNECTION_ATTEMPTS: &str = r#"
import json, os, socket
from socket import AF_INET, AF_UNIX, SOCK_DGRAM, SOCK_STREAM
folder, port = os.environ["FOLDER"], int(os.environ["PORT"])

def connect(family, address):
    with socket.socket(family, SOCK_STREAM) as stream:
        stream.connect(address)

def send():
    for end in socket.socketpair(AF_UNIX, SOCK_DGRAM)[:1]:
        end.sendto(b"x", folder + "/datagrams")

told = {}
for name, attempt in {
    "path": lambda: connect(AF_UNIX, folder + "/stream"),
    "abstract": lambda: connect(AF_UNIX, "\0" + os.environ["NAME"]),
    "datagram": send,
    "tcp": lambda: connect(AF_INET, ("127.0.0.1", port)),
}.items():
    try:
        attempt()
        told[name] = "out"
    except OSError as error:
        told[name] = type(error).__name__
print(json.dumps([told]))
"#;

/// Starts a gateway on this machine's kernel, and on a kernel without network namespaces and landlock.
fn on_kernels(start: impl Fn() -> Served + Sync) -> [(&'static str, Served); 2] {
    let missing = [libc::SYS_unshare, libc::SYS_landlock_create_ruleset];
    [("this kernel", start()), ("a kernel with neither", failing(&missing, ENOSYS, &start))]
}

#[tokio::test]
async fn sockets_are_refused_but_for_connected_pairs() {
    let scripts = [("s", json!({"command": command(SOCKETS), "network": "none"})), next()];
    for user in users() {
        for (kernel, served) in on_kernels(|| Served::new(&scripts, user)) {
            served.assert_calls("s", SOCKETS, &format!("{kernel}, user {user:?}")).await;
        }
    }
}

#[tokio::test]
async fn nothing_outside_is_reachable() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("appset-gateway-test-{}", fastrand::u64(..));
    let _stream = UnixListener::bind(folder.path().join("stream")).unwrap();
    let _datagrams = UnixDatagram::bind(folder.path().join("datagrams")).unwrap();
    let _abstract = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port().to_string();
    let script = |network: &str| {
        let env = json!({"FOLDER": folder.path(), "NAME": name, "PORT": port});
        json!({"command": ["python3", "-c", CONNECTION_ATTEMPTS], "network": network, "env": env})
    };
    let scripts = [("host", script("host")), ("none", script("none")), next()];
    for (kernel, served) in on_kernels(|| Served::new(&scripts, None)) {
        let results_of =
            async |route: &str| -> Value { served.ask(route).await.json()["output"]["parameters"][0].clone() };
        let denied = "PermissionError";
        let none = json!({"path": denied, "abstract": denied, "datagram": denied, "tcp": denied});
        assert_eq!(results_of("none").await, none, "{kernel}");
        // Landlock stops abstract sockets even with network access.
        let open = results_of("host").await;
        assert_eq!(
            (&open["path"], &open["datagram"], &open["tcp"]),
            (&json!("out"), &json!("out"), &json!("out")),
            "{kernel}"
        );
        assert_eq!(served.ask("next").await.sets(), "[]");
    }
}
