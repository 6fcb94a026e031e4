use super::*;

#[test]
fn inner_addresses_are_found_in_every_spelling() {
    use Inner::{LinkLocal, Loopback, Private, Reserved};
    for (address, kind) in [
        ("93.184.215.14", None),
        ("2606:2800:21f::1", None),
        ("100.63.255.255", None),
        ("172.32.0.1", None),
        ("127.0.0.1", Some(Loopback)),
        ("127.8.9.10", Some(Loopback)),
        ("::1", Some(Loopback)),
        ("::ffff:127.0.0.1", Some(Loopback)),
        ("::127.0.0.1", Some(Loopback)),
        ("64:ff9b::7f00:1", Some(Loopback)),
        ("2002:7f00:1::", Some(Loopback)),
        ("169.254.169.254", Some(LinkLocal)),
        ("::ffff:a9fe:a9fe", Some(LinkLocal)),
        ("64:ff9b::a9fe:a9fe", Some(LinkLocal)),
        ("100.100.100.200", Some(LinkLocal)),
        ("fe80::1", Some(LinkLocal)),
        ("fd00:ec2::254", Some(LinkLocal)),
        ("10.0.0.1", Some(Private)),
        ("172.16.0.1", Some(Private)),
        ("192.168.1.1", Some(Private)),
        ("100.64.0.1", Some(Private)),
        ("fd12::1", Some(Private)),
        ("2002:a00:1::", Some(Private)),
        ("64:ff9b:1::a9fe:a9fe", Some(Private)),
        ("64:ff9b:2::1", None),
        ("fec0::1", Some(Private)),
        ("0.0.0.0", Some(Reserved)),
        ("::", Some(Reserved)),
        ("224.0.0.1", Some(Reserved)),
        ("255.255.255.255", Some(Reserved)),
        ("ff02::1", Some(Reserved)),
    ] {
        assert_eq!(Inner::of(address.parse().unwrap()), kind, "{address}");
    }
}

#[test]
fn a_short_name_gets_advice_to_add_svc() {
    let message = |name: &str, address: &str| {
        let (name, address) = (name.to_owned(), address.parse().unwrap());
        RefusedAddress { name, address, what: Inner::of(address).unwrap(), is_led: false }.to_string()
    };
    assert!(message("hello.tools", "10.0.0.1").ends_with("`; a service of this cluster is called hello.tools.svc"));
    for other in [message("hello.tools", "127.0.0.1"), message("a.example.com", "10.0.0.1")] {
        assert!(other.ends_with('`'), "{other}");
    }
}

#[test]
fn metadata_addresses_are_for_identities_only() {
    let allowed: Vec<IpNet> = ["0.0.0.0/0", "::/0"].map(|net| net.parse().unwrap()).into();
    let usual = Addresses::new(Arc::new(SystemNames), &allowed, None);
    let v6 = ["fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "::ffff:169.254.169.254"];
    for address in ["169.254.169.254", "169.254.170.23"].into_iter().chain(v6) {
        let address: IpAddr = address.parse().unwrap();
        assert_eq!(usual.may_ask("metadata.google.internal", address), Err(Inner::Metadata), "{address}");
        let host = if address.is_ipv6() { format!("[{address}]") } else { address.to_string() };
        let url = reqwest::Url::parse(&format!("http://{host}/latest")).unwrap();
        assert!(usual.check_literal(&url).unwrap_err().to_string().contains("only identities"), "{address}");
        assert!(!usual.allow(address), "{address}");
        let own = usual.clone().with_metadata();
        assert_eq!((own.may_ask("x", address), own.check_literal(&url)), (Ok(()), Ok(())), "{address}");
    }
    assert_eq!(usual.check_literal(&reqwest::Url::parse("http://10.0.0.1/").unwrap()), Ok(()));
    for name in ["METADATA.google.internal.", "metadata.goog"] {
        let url = reqwest::Url::parse(&format!("http://{name}/x")).unwrap();
        let refusal = usual.check_literal(&url).unwrap_err().to_string();
        assert!(refusal.contains("only identities"), "a proxy would resolve {name}");
        assert_eq!(usual.clone().with_metadata().check_literal(&url), Ok(()));
    }
}

#[test]
fn an_inner_name_may_have_a_private_address() {
    let allowed: Vec<IpNet> = ["10.1.0.0/16", "169.254.170.2/32"].map(|net| net.parse().unwrap()).into();
    let addresses = Addresses::new(Arc::new(SystemNames), &allowed, Some("proxy.example.com"));
    for (name, address, may) in [
        ("api.example.com", "93.184.215.14", true),
        ("api.example.com", "10.2.0.1", false),
        ("api.example.com", "10.1.0.1", true),
        ("api.example.com", "::ffff:10.1.0.1", true),
        ("api.example.com", "127.0.0.1", false),
        ("api.example.com", "169.254.169.254", false),
        ("api.example.com", "169.254.170.2", true),
        ("api.example.com", "0.0.0.0", false),
        ("proxy.example.com", "10.2.0.1", true),
        ("hello-plugin", "10.2.0.1", true),
        ("hello-plugin", "127.0.0.1", false),
        ("hello-plugin", "169.254.169.254", false),
        ("hello.tools.svc", "10.2.0.1", true),
        ("hello.tools.svc.cluster.local.", "fd12::1", true),
        ("svc.example.com", "10.2.0.1", false),
        ("notsvc.mylocal", "10.2.0.1", false),
        ("metadata.google.internal", "169.254.169.254", false),
        ("localhost", "127.0.0.1", true),
        ("a.LOCALHOST", "::1", true),
        ("localhost", "169.254.169.254", false),
        ("notlocalhost", "127.0.0.1", false),
    ] {
        assert_eq!(addresses.may_ask(name, address.parse().unwrap()).is_ok(), may, "{name} at {address}");
    }
}

#[test]
fn a_name_from_an_answer_has_no_inner_address_unless_that_is_allowed() {
    let allowed: Vec<IpNet> = ["10.1.0.0/16"].map(|net| net.parse().unwrap()).into();
    let addresses = Addresses::new(Arc::new(SystemNames), &allowed, None).led();
    for (name, address, may) in [
        ("auth.example.com", "93.184.215.14", true),
        ("auth.example.com", "10.2.0.1", false),
        ("vault", "10.2.0.1", false),
        ("vault.tools.svc", "10.2.0.1", false),
        ("vault.tools.svc", "fd12::1", false),
        ("db.internal", "10.2.0.1", false),
        ("vault.tools.svc", "10.1.0.1", true),
        ("localhost", "127.0.0.1", false),
        ("metadata.google.internal", "169.254.169.254", false),
    ] {
        assert_eq!(addresses.may_ask(name, address.parse().unwrap()).is_ok(), may, "{name} at {address}");
    }
}
