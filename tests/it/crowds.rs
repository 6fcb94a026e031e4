//! Crowds: thousands of slow connections, unauthenticated callers who send much, and a restart under load. Real processes, in cleartext and
//! with TLS. `make unit` runs these tests one at a time, after all others.

mod calls;
mod restart;
mod slow;
mod unauthenticated;

use std::path::Path;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::support::{TestApp, authority::Ca, binary::Gateway};

const PATH: &str = "/r/api/v1/getparams.execute";
/// The `server` keys for TLS with the files of [`certify`].
const TLS: &str = ", tls: { cert: tls.crt, key: tls.key }";

/// Writes a certificate for `localhost`, signed by `ca`, and its key into `folder`.
fn certify(folder: &Path, ca: &Ca) {
    let (certificate, key) = ca.certificate(&["localhost"]);
    std::fs::write(folder.join("tls.crt"), certificate).unwrap();
    std::fs::write(folder.join("tls.key"), key).unwrap();
}

/// A gateway process with the route `r`, with more `server` keys and more `routes`.
fn serve(folder: &Path, server: &str, routes: &str) -> Gateway {
    let file = folder.join(format!("{}.yaml", fastrand::u64(..)));
    let server = format!("server: {{ listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\"{server} }}\n");
    let routes = format!("routes: [ {{ name: r, backend: {{ fixed: {{ parameters: [ {{ a: b }} ] }} }} }}{routes} ]\n");
    std::fs::write(&file, format!("{server}{}{routes}", TestApp::auth())).unwrap();
    Gateway::serve(&file)
}

/// Raises the open file limit of this process for thousands of connections.
fn allow_files() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    assert!(hard > 12_000, "the machine allows {hard} open files");
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(12_000), hard).unwrap();
}
