//! A failing registry makes an answer unknown, never empty.

use std::io::Write;

use super::*;
use crate::support::{
    proxy::Proxy,
    registry::{Registry, Setup},
    signer::Signer,
};

#[tokio::test]
async fn a_real_registry_is_deleted_from_stopped_restarted_and_slow() {
    let mut registry = Registry::start().await;
    registry.push("front:feature-branch-1", "org/app:1").await;
    registry.push("front:feature-branch-2", "org/app:2").await;
    let proxy = Proxy::start(&registry.host).await;
    let (direct, slow) = (registries(&plain(&registry.host)), registries(&plain(&proxy.address)));
    let reference = |tag: &str| format!("{}/org/app:{tag}", registry.host);
    let digest = expect_digest(look_up(&direct, &reference("1")).await);
    let delete = reqwest::Client::new().delete(registry.url(&format!("org/app/manifests/{digest}")));
    assert_eq!(delete.send().await.unwrap().status(), 202);
    assert_eq!(missing(look_up(&direct, &reference("1")).await), Missing::Tag);
    // The registry cannot tell an unknown repository from a repository without the tag.
    assert_eq!(missing(look_up(&direct, &format!("{}/org/none:1", registry.host)).await), Missing::Tag);

    let second = reference("2");
    expect_digest(look_up(&direct, &second).await);
    proxy.slow_down(Duration::from_millis(500));
    let patience = |millis| Patience {
        deadline: Instant::now() + Duration::from_millis(millis),
        max_age: Duration::ZERO,
        joins: true,
    };
    let through = Reference::parse(&format!("{}/org/app:2", proxy.address)).unwrap();
    let late = slow.look_up(&through, patience(200)).await;
    refused(late, ErrorKind::Timeout, &proxy.address.to_string());
    expect_digest(slow.look_up(&through, patience(5000)).await);

    registry.stop().await;
    let message = refused(look_up(&direct, &second).await, ErrorKind::Unavailable, "cannot connect");
    assert!(message.contains(&registry.host), "{message}");
    registry.restart().await;
    expect_digest(look_up(&direct, &second).await);
}

#[tokio::test]
async fn a_damaged_registry_store_is_an_error() {
    let registry = Registry::start().await;
    registry.push("front:feature-branch-1", "org/app:1").await;
    let digest = registry.inspect("org/app:1").await;
    let reference = format!("{}/org/app:1", registry.host);
    let blob = registry.blob(&digest);
    let whole = std::fs::read(&blob).unwrap();
    for damage in [&whole[..whole.len() / 2], b""] {
        std::fs::File::create(&blob).unwrap().write_all(damage).unwrap();
        let registries = registries(&plain(&registry.host));
        let found = look_up(&registries, &reference).await;
        assert!(matches!(&found, Err(error) if error.kind == ErrorKind::Unavailable), "{found:?}");
    }
    // A failing disk: a folder that cannot be read.
    std::fs::write(&blob, &whole).unwrap();
    expect_digest(look_up(&registries(&plain(&registry.host)), &reference).await);
    let tags = registry.repositories().join("org/app/_manifests/tags");
    std::fs::rename(&tags, tags.with_extension("away")).unwrap();
    std::fs::write(&tags, "").unwrap();
    let found = look_up(&registries(&plain(&registry.host)), &reference).await;
    assert!(found.is_err(), "{found:?}");
}

#[tokio::test]
async fn a_configured_private_certificate_is_trusted() {
    let signer = Signer::new();
    let setup = Setup { tls: Some((signer.certificate(), signer.key())), ..Setup::default() };
    let registry = Registry::start_as(setup).await;
    registry.push("front:feature-branch-1", "org/app:1").await;
    let reference = format!("{}/org/app:1", registry.host);
    let registries = |entry: Value| build(Path::new("/"), &json!({registry.host.clone(): entry})).0;
    expect_digest(look_up(&registries(json!({"ca": signer.certificate()})), &reference).await);
    let message = refused(look_up(&registries(json!({})), &reference).await, ErrorKind::Unavailable, "certificate");
    assert!(message.contains(&registry.host), "{message}");
    // The certificate of another CA does not help.
    let other = Signer::new();
    let found = look_up(&registries(json!({"ca": other.certificate()})), &reference).await;
    refused(found, ErrorKind::Unavailable, "certificate");
}

#[tokio::test]
async fn a_private_certificate_is_not_trusted_by_default() {
    let signer = Signer::new();
    let setup = Setup { tls: Some((signer.certificate(), signer.key())), ..Setup::default() };
    let registry = Registry::start_as(setup).await;
    let certificate = reqwest::Certificate::from_pem(&std::fs::read(signer.certificate()).unwrap()).unwrap();
    let client = reqwest::Client::builder().tls_certs_merge([certificate]).no_proxy().build().unwrap();
    assert_eq!(client.get(registry.url("")).send().await.unwrap().status(), 200);
    let reference = format!("{}/org/app:1", registry.host);
    let message = refused(look_up(&registries(&json!({})), &reference).await, ErrorKind::Unavailable, "certificate");
    assert!(message.contains(&registry.host), "{message}");
}
