//! Many at once: thousands who are slow, strangers who send much, and a restart that nobody notices. Real processes, by cleartext and by TLS.

mod calls;
mod restart;
mod slow;
mod strangers;

use std::path::Path;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::support::{TestApp, authority::Ca, binary::Gateway};

const PATH: &str = "/r/api/v1/getparams.execute";
/// What a gateway says of `server` that speaks TLS, with what [`certify`] writes.
const TLS: &str = ", tls: { cert: tls.crt, key: tls.key }";

/// Writes a certificate of `ca` for `localhost`, and its key, into `folder`.
fn certify(folder: &Path, ca: &Ca) {
    let (certificate, key) = ca.certificate(&["localhost"]);
    std::fs::write(folder.join("tls.crt"), certificate).unwrap();
    std::fs::write(folder.join("tls.key"), key).unwrap();
}

/// A process that has the route `r` and those of `routes`, and of `server` what is given, too.
fn serve(folder: &Path, server: &str, routes: &str) -> Gateway {
    let file = folder.join(format!("{}.yaml", fastrand::u64(..)));
    let server = format!("server: {{ listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\"{server} }}\n");
    let routes = format!("routes: [ {{ name: r, backend: {{ fixed: {{ parameters: [ {{ a: b }} ] }} }} }}{routes} ]\n");
    std::fs::write(&file, format!("{server}{}{routes}", TestApp::auth())).unwrap();
    Gateway::serve(&file)
}

/// Lets this process open as many files as thousands of connections need.
fn allow_files() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    assert!(hard > 12_000, "the machine allows {hard} open files");
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(12_000), hard).unwrap();
}
