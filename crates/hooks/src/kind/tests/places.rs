//! The registries that events are about: named by the event, or by the hook.

use super::*;

#[test]
fn github_enterprise_has_a_registry_of_its_own() {
    let event = |more: Value| {
        let mut package = json!({"name": "app", "namespace": "org", "package_version": {"container_metadata": {"tag": {"name": "main"}}}});
        for (pointer, value) in more.as_object().unwrap() {
            match pointer.as_str() {
                "package_url" => package["package_version"]["package_url"] = value.clone(),
                _ => package["registry"] = json!({"url": value}),
            }
        }
        json!({"action": "published", "package": package})
    };
    let enterprise =
        HeaderMap::from_iter([("x-github-enterprise-host".parse().unwrap(), "git.example.com".parse().unwrap())]);
    let none = HeaderMap::new();
    for (headers, more, host, expected) in [
        (&none, json!({"package_url": "containers.git.example.com/org/app:main"}), None, "containers.git.example.com"),
        (
            &none,
            json!({"package_url": "https://containers.git.example.com/org/app:main"}),
            None,
            "containers.git.example.com",
        ),
        (
            &none,
            json!({"package_url": "", "registry": "https://containers.git.example.com/org"}),
            None,
            "containers.git.example.com",
        ),
        (&none, json!({"package_url": "ghcr.io/org/app:main"}), None, "ghcr.io"),
        (&none, json!({}), None, "ghcr.io"),
        (&enterprise, json!({}), None, "containers.git.example.com"),
        (&enterprise, json!({"package_url": "ghcr.io/org/app:main"}), Some("images.example.com"), "images.example.com"),
    ] {
        assert_eq!(
            of(Kind::Github, headers, &event(more.clone()), host),
            [format!("{expected}/org/app:main")],
            "{more}"
        );
    }
}

/// Each partition has its domains, and a registry has four names.
#[test]
fn ecr_tells_by_each_name_of_its_registry() {
    let event = |region: &str, detail: Value| json!({"account": "123456789012", "region": region, "detail": detail});
    let pushed = |more: &Value| {
        let mut detail =
            json!({"result": "SUCCESS", "repository-name": "org/app", "action-type": "PUSH", "image-tag": "main"});
        detail.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        detail
    };
    for (region, host) in [
        ("us-west-2", "123456789012.dkr.ecr.us-west-2.amazonaws.com"),
        ("us-west-2", "123456789012.dkr.ecr-fips.us-west-2.amazonaws.com"),
        ("us-west-2", "123456789012.dkr-ecr.us-west-2.on.aws"),
        ("us-west-2", "123456789012.dkr-ecr-fips.us-west-2.on.aws"),
        ("us-gov-east-1", "123456789012.dkr.ecr-fips.us-gov-east-1.amazonaws.com"),
        ("cn-north-1", "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn"),
        ("cn-north-1", "123456789012.dkr-ecr.cn-north-1.on.amazonwebservices.com.cn"),
        ("us-iso-east-1", "123456789012.dkr.ecr.us-iso-east-1.c2s.ic.gov"),
        ("us-isob-east-1", "123456789012.dkr.ecr.us-isob-east-1.sc2s.sgov.gov"),
        ("us-isof-south-1", "123456789012.dkr.ecr.us-isof-south-1.csp.hci.ic.gov"),
        ("eu-isoe-west-1", "123456789012.dkr.ecr.eu-isoe-west-1.cloud.adc-e.uk"),
        ("eusc-de-east-1", "123456789012.dkr.ecr.eusc-de-east-1.amazonaws.eu"),
    ] {
        let found = subjects(Kind::Ecr, &event(region, pushed(&json!({}))));
        assert!(found.contains(&format!("{host}/org/app:main")), "{host}: {found:?}");
        assert_eq!(found.len(), if region.contains("iso") { 2 } else { 4 });
    }
    let own = of(Kind::Ecr, &HeaderMap::new(), &json!({"detail": pushed(&json!({}))}), Some("images.example.com"));
    assert_eq!(own, ["images.example.com/org/app:main"]);
    for (more, is_change) in [
        (json!({"result": "FAILURE"}), false),
        (json!({"action-type": "REPLICATE"}), true),
        (json!({"action-type": null, "result": null, "sync-status": "SUCCESS"}), true),
        (json!({"action-type": null, "result": null, "sync-status": "FAILED"}), false),
        (json!({"action-type": null, "result": null, "scan-status": "COMPLETE"}), false),
    ] {
        assert_eq!(!subjects(Kind::Ecr, &event("eu-west-1", pushed(&more))).is_empty(), is_change, "{more}");
    }
}

/// The event names the local repository, and images are pulled from a virtual one.
#[test]
fn other_places_of_a_repository_are_named_by_the_hook() {
    let repositories = [
        ("docker-local".to_owned(), OneOrMore::List(vec!["docker".to_owned(), "docker.example.com".to_owned()])),
        ("other".to_owned(), OneOrMore::One("x".to_owned())),
    ];
    let repositories = repositories.into_iter().collect();
    let naming = Naming { registry: Some("registry.example.com"), repositories: &repositories };
    let event = |kind: &str| json!({"domain": "docker", "event_type": kind, "data": {"repo_key": "docker-local", "image_name": "org/app", "tag": "main"}});
    let expected = [
        "registry.example.com/docker-local/org/app:main",
        "registry.example.com/docker/org/app:main",
        "docker.example.com/org/app:main",
    ];
    for kind in ["pushed", "promoted", "deleted"] {
        assert_eq!(by(Kind::Jfrog, &HeaderMap::new(), &event(kind), naming), expected, "{kind}");
    }
    assert!(by(Kind::Jfrog, &HeaderMap::new(), &event("scanned"), naming).is_empty());
    let nexus = |format: &str, action: &str| json!({"action": action, "repositoryName": "other", "component": {"format": format, "name": "app", "version": "1"}});
    assert_eq!(
        by(Kind::Nexus, &HeaderMap::new(), &nexus("docker", "CREATED"), naming),
        ["registry.example.com/app:1", "registry.example.com/x/app:1"]
    );
    assert!(by(Kind::Nexus, &HeaderMap::new(), &nexus("npm", "CREATED"), naming).is_empty());
    assert!(by(Kind::Nexus, &HeaderMap::new(), &nexus("docker", "READ"), naming).is_empty());
}
