//! Certificates of relay and service, and their CA, that are renewed while calls go on.

use std::{
    fs,
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use crate::{
    relay_faults::under_load,
    remotes::{Certificates, Service},
    support::{Gateway, script},
};

fn wait(what: &str, is_true: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_mins(1);
    while !is_true() {
        assert!(Instant::now() < until, "{what}");
        sleep(Duration::from_millis(20));
    }
}

fn count(gateway: &Gateway, text: &str) -> usize {
    gateway.log().matches(text).count()
}

/// Puts a file in the place of another one, as a mounted Secret changes.
fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(&new, file).unwrap();
}

/// A change of the certificates, which the services use by themselves. Then the relay connects again, as it does for a changed remote.
fn rotate(relay: &Gateway, services: &[Service], step: usize, change: impl FnOnce()) {
    let before: Vec<_> =
        services.iter().map(|service| count(&service.gateway, "new certificates are in use")).collect();
    change();
    for (service, before) in services.iter().zip(before) {
        wait("the service reads its files again", || count(&service.gateway, "new certificates are in use") > before);
    }
    let (file, text) = (relay.path("relay.yaml"), "the changed relay.yaml is in use");
    let before = count(relay, text);
    let config = fs::read_to_string(&file).unwrap();
    let config: Vec<&str> = config.lines().filter(|line| !line.contains("timeout:")).collect();
    replace(&file, &format!("{}\n  timeout: {}s\n", config.join("\n"), 60 + step));
    wait("the relay reads its file again", || count(relay, text) > before);
    sleep(Duration::from_secs(1));
}

#[test]
fn renewed_certificates_and_a_new_ca_fail_no_call() {
    let (certificates, old, new) = (Certificates::new(), Certificates::new(), Certificates::new());
    let (here, next) = (certificates.path(), new.path());
    for name in ["ca.pem", "tls.crt", "tls.key", "caller.crt", "caller.key"] {
        fs::copy(here.join(name), old.path().join(name)).unwrap();
    }
    let read = |file: &str| fs::read_to_string(next.join(file)).unwrap();
    let services = [(); 2].map(|()| certificates.service(&script("cat x"), ""));
    let addresses = [services[0].address.as_str(), services[1].address.as_str()];
    let relay = certificates.relay(&addresses, "");
    relay.file("x", "a: b\n");
    let failed = under_load(&relay, || {
        rotate(&relay, &services, 1, || {
            let both = fs::read_to_string(here.join("ca.pem")).unwrap() + &read("ca.pem");
            replace(&here.join("ca.pem"), &both);
        });
        rotate(&relay, &services, 2, || {
            for file in ["tls.key", "tls.crt", "caller.key", "caller.crt"] {
                replace(&here.join(file), &read(file));
            }
        });
        rotate(&relay, &services, 3, || replace(&here.join("ca.pem"), &read("ca.pem")));
    });
    assert!(failed.is_empty(), "{failed:?}: {}", relay.log());
    // The old ones are worth nothing now, in either direction.
    fs::write(old.path().join("ca.pem"), read("ca.pem")).unwrap();
    let refused = |certificates: &Certificates| {
        let relay = certificates.relay(&addresses, "  timeout: 4s\n");
        relay.file("x", "a: b\n");
        relay.ask("GenerateManifest", ".", &["-timeout", "60s"]).error().to_owned()
    };
    let error = refused(&old);
    // With TLS 1.3 the service refuses a certificate after the client's handshake, and its alert may be lost with the connection.
    assert!(error.contains("the connection failed"), "the relay's certificate: {error}");
    let stranger = Certificates::new();
    for name in ["caller.crt", "caller.key"] {
        fs::copy(here.join(name), stranger.path().join(name)).unwrap();
    }
    let error = refused(&stranger);
    assert!(error.contains("TLS: invalid peer certificate"), "the service's certificate: {error}");
}
