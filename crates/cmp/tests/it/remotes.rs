//! Services and relays, each in a process of its own.

use std::{fs, path::Path};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use crate::support::Gateway;

/// Writes a CA, a certificate of `localhost` with its key, and a caller's certificate with its key.
pub(crate) fn certify(folder: &Path) {
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    fs::write(folder.join("ca.pem"), ca.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(ca, key);
    let signed = |params: CertificateParams| {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
    };
    let (certificate, key) = signed(CertificateParams::new(vec!["localhost".to_owned()]).unwrap());
    fs::write(folder.join("tls.crt"), certificate).unwrap();
    fs::write(folder.join("tls.key"), key).unwrap();
    let mut caller = CertificateParams::new(Vec::new()).unwrap();
    caller.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
    let (certificate, key) = signed(caller);
    fs::write(folder.join("caller.crt"), &certificate).unwrap();
    fs::write(folder.join("caller.key"), &key).unwrap();
    fs::write(folder.join("caller.pem"), certificate + &key).unwrap();
}

/// Files of a CA, and what it has signed.
pub(crate) struct Certificates(TempDir);

impl Certificates {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        certify(folder.path());
        Self(folder)
    }

    /// The `tls` of a remote in relay.yaml.
    pub(crate) fn of_relay(&self) -> String {
        let folder = self.0.path().display();
        format!("{{ ca: {folder}/ca.pem, cert: {folder}/caller.crt, key: {folder}/caller.key, serverName: localhost }}")
    }

    /// A service of `plugin`, with more settings of it, and its address.
    pub(crate) fn service(&self, plugin: &str, settings: &str) -> Service {
        self.service_with(plugin, settings, "")
    }

    /// A service that keeps trees of these bytes.
    pub(crate) fn service_trees(&self, plugin: &str, trees: &str) -> Service {
        self.service_of(plugin, "", "", &format!("trees: {trees}\n"))
    }

    /// As [`Certificates::service`], with more keys of the listener.
    pub(crate) fn service_with(&self, plugin: &str, settings: &str, listen: &str) -> Service {
        self.service_of(plugin, settings, listen, "")
    }

    fn service_of(&self, plugin: &str, settings: &str, listen: &str, keys: &str) -> Service {
        let folder = self.0.path().display();
        let config = format!(
            "{keys}admin: 127.0.0.1:0\nlisten: {{ address: 127.0.0.1:0, tls: {{ cert: {folder}/tls.crt, key: {folder}/tls.key, clientCa: {folder}/ca.pem }}\
             {listen} }}\nplugins:\n- {{ config: demo{settings} }}\n"
        );
        let mut gateway = Gateway::serve(&config, &[("demo", plugin)]);
        let address = gateway.address("serving by TLS");
        Service { gateway, address }
    }

    /// A relay of `demo-v1.0` at these addresses, with more settings of it.
    pub(crate) fn relay(&self, addresses: &[&str], settings: &str) -> Gateway {
        Gateway::relay(&[], &self.relay_yaml(addresses, settings))
    }

    /// The file of such a relay.
    pub(crate) fn relay_yaml(&self, addresses: &[&str], settings: &str) -> String {
        format!(
            "admin: 127.0.0.1:0\nremotes:\n- name: demo\n  version: v1.0\n  address: [{}]\n  tls: {}\n{settings}",
            addresses.iter().map(|address| format!("'{address}'")).collect::<Vec<_>>().join(", "),
            self.of_relay()
        )
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

/// A plugin as a service.
pub(crate) struct Service {
    pub(crate) gateway: Gateway,
    pub(crate) address: String,
}

impl Service {
    /// Starts it again when it has ended, at the same address.
    pub(crate) fn restart(&mut self) {
        let file = self.gateway.path("cmp.yaml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("address: 127.0.0.1:0, tls", &format!("address: '{}', tls", self.address)))
            .unwrap();
        let log = self.gateway.path("log");
        let count = || fs::read_to_string(&log).unwrap().matches("serving by TLS").count();
        let before = count();
        self.gateway.restart();
        self.gateway.wait_until(|| count() > before);
    }

    /// How many runs of the plugin have ended.
    pub(crate) fn runs(&mut self) -> u64 {
        metric(&mut self.gateway, "cmp_gateway_runs_total", "demo")
    }
}

/// The value of a metric at the admin address `address`: of all its rows that have `label`.
pub(crate) fn metric(gateway: &mut Gateway, name: &str, label: &str) -> u64 {
    let address = gateway.address("serving probes and metrics");
    let text = get(&address, "/metrics");
    let rows = text.lines().filter(|line| line.starts_with(name) && line.contains(label));
    rows.map(|row| row.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// The body of a page.
pub(crate) fn get(address: &str, path: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.split_once("\r\n\r\n").unwrap().1.to_owned()
}
