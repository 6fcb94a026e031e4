//! DNS: a name is looked up at each use, and only permitted addresses are contacted.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Mutex,
};

use async_trait::async_trait;
use outbound::Names;

use super::*;

/// A name with another address at each lookup.
#[derive(Debug)]
struct RebindingName(Mutex<Vec<Vec<IpAddr>>>);

#[async_trait]
impl Names for RebindingName {
    async fn lookup(&self, host: &str) -> std::io::Result<Vec<IpAddr>> {
        assert_eq!(host, "inventory.example.com");
        Ok(self.0.lock().unwrap().remove(0))
    }
}

fn client_with_rebinding_name(turns: &[&[Ipv4Addr]], allowed: &[&str]) -> Arc<HttpClient> {
    let turns = turns.iter().map(|turn| turn.iter().copied().map(IpAddr::from).collect()).collect();
    let allowed: Vec<_> = allowed.iter().map(|net| net.parse().unwrap()).collect();
    let outbound =
        Outbound::new(TestClock::standing()).reaching(Arc::new(RebindingName(Mutex::new(turns))), &allowed, None);
    outbound.client(ClientOptions::default()).unwrap()
}

/// A call of the name at the port of `upstream`.
fn by_name(upstream: &Upstream) -> Call {
    let url = Url::parse(&format!("http://inventory.example.com:{}/", upstream.address.port())).unwrap();
    Call::get(url, 4096, Instant::now() + Duration::from_secs(10))
}

#[tokio::test]
async fn a_name_rebound_to_an_internal_address_is_refused() {
    let (good, inner) = (Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2));
    let upstream = Upstream::start(|_| ok_response()).await;
    // The other upstream listens at the same port.
    let victim = tokio::net::TcpListener::bind((inner, upstream.address.port())).await.unwrap();
    let turns: &[&[Ipv4Addr]] = &[&[good], &[inner], &[inner, good]];
    let client = client_with_rebinding_name(turns, &["127.0.0.1/32"]);
    assert_eq!(client.fetch(by_name(&upstream)).await.unwrap().status.as_u16(), 200);
    let message = fails(
        client.fetch(by_name(&upstream)).await,
        ErrorKind::Denied,
        "the name inventory.example.com is at 127.0.0.2",
    );
    assert!(
        message.contains("this machine itself") && message.ends_with("`outbound: { allowAddresses: [127.0.0.2] }`"),
        "{message}"
    );
    // Of several addresses, only the permitted ones are contacted.
    assert_eq!(client.fetch(by_name(&upstream)).await.unwrap().status.as_u16(), 200);
    assert_eq!(request_count(&upstream), 2);
    let nobody = tokio::time::timeout(Duration::from_millis(50), victim.accept()).await;
    assert!(nobody.is_err(), "the inner address was asked");
}

#[tokio::test]
async fn link_local_and_private_addresses_are_refused_and_say_how_to_allow_them() {
    let upstream = Upstream::start(|_| ok_response()).await;
    for (address, what) in [
        (Ipv4Addr::new(169, 254, 169, 253), "a link-local address"),
        (Ipv4Addr::new(10, 0, 0, 1), "a private address"),
        (Ipv4Addr::UNSPECIFIED, "a reserved address"),
    ] {
        let client = client_with_rebinding_name(&[&[address]], &[]);
        fails(client.fetch(by_name(&upstream)).await, ErrorKind::Denied, &format!("is at {address}, {what}, "));
    }
    assert_eq!(request_count(&upstream), 0);
}

/// By a name or by the address itself, and whatever `allowAddresses` has.
#[tokio::test]
async fn a_metadata_address_is_never_sent_a_request_of_a_url() {
    let upstream = Upstream::start(|_| ok_response()).await;
    let metadata = Ipv4Addr::new(169, 254, 169, 254);
    let client = client_with_rebinding_name(&[&[metadata]], &["169.254.0.0/16"]);
    let says = "is at 169.254.169.254, a metadata address, and gets no requests there: only identities ask there";
    fails(client.fetch(by_name(&upstream)).await, ErrorKind::Denied, says);
    let url = Url::parse("http://169.254.169.254/latest/meta-data/").unwrap();
    let call = Call::get(url, 4096, Instant::now() + Duration::from_secs(20));
    fails(client.fetch(call).await, ErrorKind::Denied, "which only identities ask");
}

#[tokio::test]
async fn a_refused_address_does_not_open_the_breaker() {
    let upstream = Upstream::start(|_| ok_response()).await;
    let (inner, good) = ([Ipv4Addr::new(10, 0, 0, 1)], [Ipv4Addr::LOCALHOST]);
    let turns: Vec<&[Ipv4Addr]> = [&inner[..]; 6].into_iter().chain([&good[..]]).collect();
    let client = client_with_rebinding_name(&turns, &["127.0.0.0/8"]);
    for _ in 0..6 {
        fails(client.fetch(by_name(&upstream)).await, ErrorKind::Denied, "10.0.0.1");
    }
    assert_eq!(client.fetch(by_name(&upstream)).await.unwrap().status.as_u16(), 200);
}

#[tokio::test]
async fn a_name_without_an_address_is_reported() {
    let upstream = Upstream::start(|_| ok_response()).await;
    let url = Url::parse("http://nowhere.invalid/").unwrap();
    let call = Call { may_repeat: false, ..Call::get(url, 4096, Instant::now() + Duration::from_secs(20)) };
    fails(new_client(ClientOptions::default()).0.fetch(call).await, ErrorKind::Unavailable, "cannot connect: ");
    assert_eq!(request_count(&upstream), 0);
}

/// Every name has this address.
#[derive(Debug)]
struct OneAddress(Ipv4Addr);

#[async_trait]
impl Names for OneAddress {
    async fn lookup(&self, _: &str) -> std::io::Result<Vec<IpAddr>> {
        Ok(vec![self.0.into()])
    }
}

/// A name of the configuration may be an inner one. An answer of another host, such as a token realm, must not lead to one.
#[tokio::test]
async fn an_answer_leads_to_no_inner_service_unless_that_is_allowed() {
    let upstream = Upstream::start(|_| ok_response()).await;
    let client = |address: Ipv4Addr, allowed: &[&str]| {
        let allowed: Vec<_> = allowed.iter().map(|net| net.parse().unwrap()).collect();
        let outbound = Outbound::new(TestClock::standing()).reaching(Arc::new(OneAddress(address)), &allowed, None);
        outbound.client(ClientOptions::default()).unwrap()
    };
    let call = |host: &str| {
        let url = Url::parse(&format!("http://{host}:{}/", upstream.address.port())).unwrap();
        Call::get(url, 4096, Instant::now() + Duration::from_secs(10))
    };
    let registry = Url::parse("http://registry.tools.svc/").unwrap();
    for host in ["vault.tools.svc", "vault", "db.internal"] {
        let led = call(host).led_from(&registry);
        let inner = Ipv4Addr::new(10, 0, 0, 1);
        fails(client(inner, &[]).fetch(led.clone()).await, ErrorKind::Denied, "is at 10.0.0.1, a private address");
        // What is allowed by the configuration is asked.
        let allowed = client(Ipv4Addr::LOCALHOST, &["127.0.0.1/32"]);
        assert_eq!(allowed.fetch(led).await.unwrap().status.as_u16(), 200);
    }
    let local = client(Ipv4Addr::LOCALHOST, &[]);
    assert_eq!(local.fetch(call("localhost")).await.unwrap().status.as_u16(), 200, "a name of the configuration");
    let led = call("localhost").led_from(&registry);
    fails(local.fetch(led).await, ErrorKind::Denied, "is at 127.0.0.1, this machine itself");
    let own = call("localhost").led_from(&Url::parse("http://localhost/").unwrap());
    assert_eq!(local.fetch(own).await.unwrap().status.as_u16(), 200, "the same host");
}
