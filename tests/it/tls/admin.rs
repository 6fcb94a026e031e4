//! TLS on the admin listener: a certificate of its own, and commands that trust it.

use std::time::Duration;

use tokio::{
    io::AsyncWriteExt as _,
    time::{sleep, timeout},
};

use super::{PATH, ROUTES, ask};
use crate::support::{
    ADMIN_TOKEN, TOKEN, TestApp,
    authority::Ca,
    binary::{Gateway, command},
    mounted::mount,
    visitor::Visitor,
    wire::{argo_request, exchange_admin, operator_request, read_whole},
};

const GET: &[u8] = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[tokio::test]
async fn the_admin_listener_has_a_certificate_of_its_own() {
    let (of_main, of_admin) = (Ca::new("main"), Ca::new("admin"));
    let folder = tempfile::tempdir().unwrap();
    for (name, ca) in [("main", &of_main), ("admin", &of_admin)] {
        let (certificate, key) = ca.certificate(&["localhost"]);
        std::fs::write(folder.path().join(format!("{name}.crt")), certificate).unwrap();
        std::fs::write(folder.path().join(format!("{name}.key")), key).unwrap();
    }
    let server = "server: { tls: { cert: main.crt, key: main.key }, adminTls: { cert: admin.crt, key: admin.key } }\n";
    let app = TestApp::start_in(folder, &format!("{server}{}{ROUTES}", TestApp::auth())).await;
    let [main, admin] = [&of_main, &of_admin].map(|ca| Visitor::new(&ca.pem, None, &["http/1.1"]));
    assert_eq!(ask(&main, app.address, &argo_request(PATH, TOKEN, b"{}")).await.unwrap().status, 200);
    assert!(main.connect(app.admin).await.is_err() && admin.connect(app.address).await.is_err());
    let ready = ask(&admin, app.admin, GET).await.unwrap();
    assert_eq!((ready.status, ready.text().as_str()), (200, "ok\n"));
    let mut stream = admin.connect(app.admin).await.unwrap();
    stream.write_all(operator_request("GET", "/admin/held", "").as_bytes()).await.unwrap();
    let over_tls = read_whole(&mut stream).await;
    assert_eq!(over_tls.text(), r#"{"held":[]}"#);
    let h2 = Visitor::new(&of_admin.pem, None, &["h2"]).connect(app.admin).await.unwrap();
    assert_eq!(h2.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let cleartext = exchange_admin(app.admin, GET).await;
    assert_eq!((cleartext.status, cleartext.code().as_str()), (400, "invalid_request"));
    assert!(cleartext.message().contains("(`server.adminTls`): use https://"), "{}", cleartext.message());
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_trust_its_authority_and_a_renewed_certificate_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let secret = at("secret");
    std::fs::create_dir(&secret).unwrap();
    let (old, new) = (Ca::new("old"), Ca::new("new"));
    let mounted = |version: &str, ca: &Ca| {
        let (certificate, key) = ca.certificate(&["localhost"]);
        mount(&secret, version, &[("tls.crt", &certificate), ("tls.key", &key)]);
    };
    mounted("v1", &old);
    for (name, content) in
        [("token", TOKEN), ("admin-token", ADMIN_TOKEN), ("old.crt", &old.pem), ("new.crt", &new.pem)]
    {
        std::fs::write(at(name), content).unwrap();
    }
    let config = at("gateway.yaml");
    let server = "server: { listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", adminTls: { cert: secret/tls.crt, key: secret/tls.key } }\n";
    let auth = "auth: { tokens: [ { name: t, file: token }, { name: o, role: admin, file: admin-token } ] }\n";
    std::fs::write(&config, format!("{server}{auth}{ROUTES}")).unwrap();
    let gateway = Gateway::serve(&config);
    let list = |ca: Option<&str>| {
        let mut command = command();
        let admin = format!("https://localhost:{}", gateway.admin.port());
        command.args(["held", "list", "--admin", &admin, "-c"]).arg(&config);
        ca.map(|ca| command.arg("--admin-ca").arg(at(ca)));
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    assert_eq!(list(Some("old.crt")), (Some(0), "nothing is held\n".to_owned()));
    for ca in [None, Some("new.crt")] {
        let (code, says) = list(ca);
        assert!(code == Some(1) && says.contains("certificate"), "{says}");
    }
    mounted("v2", &new);
    let of_new = Visitor::new(&new.pem, None, &["http/1.1"]);
    let renewed = async {
        while of_new.connect(gateway.admin).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(20), renewed).await.expect("the new certificate is shown");
    assert_eq!(list(Some("new.crt")).0, Some(0));
}
