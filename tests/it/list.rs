//! The `list` form of the `digests` backend: the selected tags of the selected repositories, and the output for each.

mod problems;
mod trouble;

use serde_json::{Value, json};

use crate::support::{Reply, TestApp, images, registry::Registry, upstream::refused};

/// A configuration with the routes `l`, `l2` … for the lists, with an optional `output`.
fn config(host: &str, lists: &[Value], output: Option<&str>) -> String {
    let route = |(index, list): (usize, &Value)| {
        let name = if index == 0 { "l".to_owned() } else { format!("l{}", index + 1) };
        let mut route = json!({"name": name, "backend": {"digests": {"list": list}}, "guard": {"onEmpty": "allow",
            "maxShrink": "100%"}, "deadline": "28s"});
        if let Some(output) = output {
            route["output"] = json!({"it": output});
        }
        route
    };
    let routes: Vec<Value> = lists.iter().enumerate().map(route).collect();
    let registries = json!({host: {"plainHttp": true, "concurrency": 32}});
    format!("{}registries: {registries}\nroutes: {}\n", TestApp::auth(), json!(routes))
}

/// A gateway with `list` and `output`. `~` stands for the registry `host`.
async fn gateway(host: &str, mut list: Value, output: &str) -> TestApp {
    for repository in list["repositories"].as_array_mut().unwrap() {
        *repository = json!(repository.as_str().unwrap().replace('~', host));
    }
    TestApp::start(&config(host, &[list], Some(output))).await
}

/// The rendered output of each match.
#[track_caller]
fn outputs(reply: &Reply) -> Vec<String> {
    let sets: Vec<Value> = serde_json::from_str(&reply.sets()).unwrap();
    sets.iter().map(|set| set["it"].as_str().unwrap().to_owned()).collect()
}

async fn tags(host: &str, list: Value) -> Vec<String> {
    outputs(&gateway(host, list, "{{ tag }}").await.ask("l", json!({"number": "12"})).await)
}

#[tokio::test]
async fn the_output_can_use_every_field_of_a_match() {
    let registry = Registry::start().await;
    let manifest =
        json!({"annotations": {"org.example.tier": "web", "org.opencontainers.image.created": "2026-01-02T03:04:05Z"}});
    let labels = json!({"Labels": {"org.opencontainers.image.revision": "0123456789abcdef0123456789abcdef01234567"}});
    let image = json!({"created": "2020-01-01T00:00:00Z", "os": "linux", "architecture": "arm64", "variant": "v8", "config": labels});
    let digest = registry.put("org/front", &["v1.2.3-rc.1_b7"], manifest, &image).await;
    let host = &registry.host;
    let list = json!({"repositories": [format!("{host}/org/front")], "sort": "semver",
        "tags": {"regex": "v(?<minor>\\d+\\.\\d+)\\.(\\d+).*?(?<none>x)?"}});
    let app = TestApp::start(&config(host, &[list], None)).await;
    let expected = format!(
        "{{\"output\":{{\"parameters\":[{{\"registry\":\"{host}\",\"repository\":\"org/front\",\"tag\":\"v1.2.3-rc.1_b7\",\
         \"digest\":\"{digest}\",\"pinned\":\"{host}/org/front@{digest}\",\
         \"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\
         \"artifactType\":\"application/vnd.oci.image.config.v1+json\",\"created\":\"2026-01-02T03:04:05Z\",\
         \"revision\":\"0123456789abcdef0123456789abcdef01234567\",\"platforms\":[\"linux/arm64/v8\"],\
         \"annotations\":{{\"org.example.tier\":\"web\",\"org.opencontainers.image.created\":\"2026-01-02T03:04:05Z\"}},\
         \"semver\":{{\"major\":\"1\",\"minor\":\"2\",\"patch\":\"3\",\"prerelease\":\"rc.1\",\"build\":\"b7\"}},\
         \"captures\":{{\"minor\":\"1.2\",\"none\":\"\"}}}}]}}}}"
    );
    assert_eq!(app.ask("l", json!({})).await.text(), expected);

    // `skopeo` finds the same digest.
    registry.push("front:feature-branch-1", "org/pushed:1").await;
    let app = gateway(host, json!({"repositories": ["~/org/pushed"]}), "{{ digest }}").await;
    assert_eq!(outputs(&app.ask("l", json!({})).await), [registry.inspect("org/pushed:1").await]);
}

#[tokio::test]
async fn tags_are_selected_sorted_and_limited() {
    let registry = Registry::start().await;
    let host = &*registry.host;
    for (tags, created) in [
        (&["1.9.0", "latest"][..], "2026-03-01T00:00:00Z"),
        (&["v1.10.0", "pr-12-abc"], "2026-02-01T00:00:00+02:00"),
        (&["2.0.0-rc.1", "pr-7-def"], "2026-02-01T00:00:00+01:00"),
        (&["2.0.0"], "2026-01-01T00:00:00Z"),
        (&["undated"], "yesterday"),
    ] {
        registry.put_image("org/front", tags, created).await;
    }
    let signature = format!("sha256-{}.sig", "0".repeat(64));
    registry.put_image("org/front", &[&signature], "2027-01-01T00:00:00Z").await;
    let by_name = ["v1.10.0", "undated", "pr-7-def", "pr-12-abc", "latest", "2.0.0-rc.1", "2.0.0", "1.9.0"];
    for (more, expected) in [
        (json!({}), &by_name[..]),
        (json!({"limit": 2}), &by_name[..2]),
        (json!({"sort": "semver"}), &["2.0.0", "2.0.0-rc.1", "v1.10.0", "1.9.0"]),
        (json!({"tags": {"semver": "*"}}), &["2.0.0", "v1.10.0", "1.9.0"]),
        (json!({"tags": {"semver": ">=1.2, <2"}, "limit": 1}), &["v1.10.0"]),
        (json!({"tags": {"semver": "*"}, "sort": "alphabetical"}), &["v1.10.0", "2.0.0", "1.9.0"]),
        (json!({"tags": {"semver": "*", "glob": "v*"}}), &["v1.10.0"]),
        (json!({"tags": {"glob": "pr-{{ params.number }}-*"}}), &["pr-12-abc"]),
        (json!({"tags": {"regex": "pr-\\d-.*|latest"}}), &["pr-7-def", "latest"]),
        (json!({"tags": {"ignore": ["*.*", "pr-??-*", "late?t"]}}), &["undated", "pr-7-def"]),
        (
            json!({"tags": {"ignore": ["latest", "pr-*"]}, "sort": "created"}),
            &["1.9.0", "2.0.0-rc.1", "v1.10.0", "2.0.0", "undated"],
        ),
        (json!({"tags": {"glob": "*t*"}, "sort": "created", "limit": 1}), &["latest"]),
        (json!({"tags": {"glob": "nightly-*"}}), &[]),
    ] {
        let mut list = json!({"repositories": ["~/org/front"]});
        list.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(tags(host, list.clone()).await, expected, "{list}");
    }
    // The texts that each `*` matches, in order.
    let list = json!({"repositories": ["~/org/front"], "tags": {"glob": "pr-*-*"}});
    let app = gateway(host, list, "{{ captures[0] }}/{{ captures[1] }}").await;
    assert_eq!(outputs(&app.ask("l", json!({})).await), ["7/def", "12/abc"]);
    // A parameter matches literally. A character that no tag can hold would select nothing.
    let list = json!({"repositories": ["~/org/front"], "tags": {"glob": "{{ params.branch }}*"}});
    let app = gateway(host, list, "{{ tag }}").await;
    assert_eq!(outputs(&app.ask("l", json!({"branch": "late"})).await), ["latest"]);
    for branch in ["*", "lat?st", "", "feat/x", "[a]", "{{", "ü"] {
        refused(&app.ask("l", json!({"branch": branch})).await, 422, "invalid_input", "tags.glob: ");
    }
}

#[tokio::test]
async fn tags_are_selected_by_annotation_and_artifact_type() {
    let registry = Registry::start().await;
    let annotated = |tier: &str| json!({"annotations": {"org.example.tier": tier, "org.example.team": "a"}});
    registry.put("org/mixed", &["web"], annotated("web"), &json!({})).await;
    registry.put("org/mixed", &["worker"], annotated("worker\n2"), &json!({})).await;
    registry.put_image("org/mixed", &["plain"], "2026-01-01T00:00:00Z").await;
    let chart = json!({"config": {"mediaType": "application/vnd.cncf.helm.config.v1+json"}});
    registry.put("org/mixed", &["chart"], chart, &json!({"name": "chart"})).await;
    let policy = json!({"artifactType": "application/vnd.example.policy", "config": {"mediaType": "application/vnd.oci.empty.v1+json"}});
    registry.put("org/mixed", &["policy"], policy, &json!({})).await;
    for (more, expected) in [
        (json!({"annotations": {"org.example.tier": "web"}}), &["web"][..]),
        (json!({"annotations": {"org.example.tier": "w*"}}), &["worker", "web"]),
        (json!({"annotations": {"org.example.tier": "w*"}, "limit": 1}), &["worker"]),
        (json!({"annotations": {"org.example.tier": "w?b", "org.example.team": "*"}}), &["web"]),
        (json!({"annotations": {"org.example.tier": "[w]eb"}}), &[]),
        (json!({"annotations": {"org.example.other": "*"}}), &[]),
        (json!({"artifactType": "application/vnd.cncf.helm.config.v1+json"}), &["chart"]),
        (json!({"artifactType": "application/vnd.example.policy"}), &["policy"]),
        (
            json!({"artifactType": "application/vnd.oci.image.config.v1+json", "tags": {"glob": "w*"}}),
            &["worker", "web"],
        ),
    ] {
        let mut list = json!({"repositories": ["~/org/mixed"]});
        list.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(tags(&registry.host, list.clone()).await, expected, "{list}");
    }
}

/// Builders write annotations on the index, on its images, or on both.
#[tokio::test]
async fn an_index_without_annotations_has_those_of_its_first_image() {
    let (registry, folder) = (Registry::start().await, tempfile::tempdir().unwrap());
    let folder = folder.path();
    images::create(folder);
    let tier = |tier: &str| json!({"org.example.tier": tier});
    let image = |architecture: &str, annotations: &Value| {
        images::image(folder, &json!({"os": "linux", "architecture": architecture}), &tier("label"), annotations)
    };
    let [web, worker, bare] =
        [image("amd64", &tier("web")), image("arm64", &tier("worker")), image("s390x", &json!({}))];
    let index =
        |members: [&Value; 2], annotations: &Value| images::index(folder, &members.map(Value::clone), annotations);
    for (name, descriptor) in [
        ("first", index([&web, &worker], &json!({}))),
        ("own", index([&web, &worker], &json!({"org.example.team": "a"}))),
        ("bare", index([&bare, &web], &json!({}))),
        ("image", web.clone()),
    ] {
        images::name(folder, name, descriptor);
        registry.push_all(folder, name, &format!("org/app:{name}")).await;
    }
    for (wanted, expected) in [
        (json!({"org.example.tier": "web"}), &["image", "first"][..]),
        (json!({"org.example.tier": "worker"}), &[]),
        (json!({"org.example.tier": "label"}), &[]),
        (json!({"org.example.team": "a"}), &["own"]),
    ] {
        let list = json!({"repositories": ["~/org/app"], "annotations": wanted});
        assert_eq!(tags(&registry.host, list).await, expected, "{wanted}");
    }
    let app =
        gateway(&registry.host, json!({"repositories": ["~/org/app"]}), "{{ tag }} {{ annotations | tojson }}").await;
    let expected = [
        r#"own {"org.example.team": "a"}"#,
        r#"image {"org.example.tier": "web"}"#,
        r#"first {"org.example.tier": "web"}"#,
        "bare {}",
    ];
    assert_eq!(outputs(&app.ask("l", json!({})).await), expected);
}

#[tokio::test]
async fn repositories_are_selected_by_name_and_by_pattern() {
    let registry = Registry::start().await;
    for repository in ["org/front", "org/back", "org/deep/front", "other/front"] {
        registry.put_image(repository, &["1", "2"], "2026-01-01T00:00:00Z").await;
    }
    let host = &*registry.host;
    for (repositories, expected) in [
        (json!(["~/org/*"]), &["org/back:2", "org/front:2"][..]),
        (json!(["~/org/**"]), &["org/back:2", "org/deep/front:2", "org/front:2"]),
        (json!(["~/**/front"]), &["org/deep/front:2", "org/front:2", "other/front:2"]),
        (json!(["~/org/{{ params.team }}-*", "~/or?/b*"]), &["org/back:2"]),
        // Each repository once, at its first position.
        (json!(["~/other/front", "~/*/front", "~/other/front"]), &["other/front:2", "org/front:2"]),
    ] {
        let list = json!({"repositories": repositories, "limit": 1, "missingRepository": "absent"});
        let app = gateway(host, list.clone(), "{{ repository }}:{{ tag }}").await;
        assert_eq!(outputs(&app.ask("l", json!({"team": "a"})).await), expected, "{list}");
    }
    // A missing repository is an error unless `missingRepository` allows it.
    for (repositories, says) in [
        (json!(["~/org/front", "~/org/frnot"]), "org/frnot: 404, the registry has no such repository"),
        (json!(["~/org/front", "~/nowhere/*"]), "nowhere/*: no repository of the catalogue fits"),
    ] {
        let app = gateway(host, json!({"repositories": repositories}), "{{ tag }}").await;
        let message = refused(&app.ask("l", json!({})).await, 502, "backend_output_invalid", says);
        assert!(message.contains("`missingRepository: absent`"), "{message}");
        let list = json!({"repositories": repositories, "missingRepository": "absent"});
        assert_eq!(tags(host, list).await, ["2", "1"]);
        let list = json!({"repositories": [repositories[1]], "missingRepository": "absent"});
        assert_eq!(tags(host, list).await, [""; 0]);
    }
    let app = gateway(host, json!({"repositories": ["~/org/{{ params.name }}"]}), "{{ tag }}").await;
    assert_eq!(outputs(&app.ask("l", json!({"name": "deep/front"})).await), ["2", "1"]);
    for name in ["*", "?", "", "../x", "front:1", "Front", "front@sha256:0", "front/", "[a]", "a b"] {
        refused(&app.ask("l", json!({"name": name})).await, 422, "invalid_input", "repositories: ");
    }
}

#[tokio::test]
async fn a_long_list_is_read_to_its_end() {
    let registry = Registry::start().await;
    let all: Vec<String> = (0..320).map(|number| format!("1.{number}.0")).collect();
    let names: Vec<&str> = all.iter().map(String::as_str).collect();
    registry.put_image("org/long", &names, "2026-01-01T00:00:00Z").await;
    let expected: Vec<&str> = names.iter().rev().copied().collect();
    let list = json!({"repositories": ["~/org/long"], "sort": "semver"});
    assert_eq!(tags(&registry.host, list).await, expected);
    let list = json!({"repositories": ["~/org/long"], "tags": {"semver": "*"}, "limit": 1});
    assert_eq!(tags(&registry.host, list).await, ["1.319.0"]);
}

#[tokio::test]
async fn a_large_catalogue_is_read_to_its_end() {
    let registry = Registry::start().await;
    registry.put_image("org/r000", &["1", "2"], "2026-01-01T00:00:00Z").await;
    let names: Vec<String> = (0..320).map(|number| format!("org/r{number:03}")).collect();
    for name in &names[1..] {
        registry.copy("org/r000", name);
    }
    let list = json!({"repositories": ["~/org/*"], "limit": 1});
    let app = gateway(&registry.host, list, "{{ repository }}:{{ tag }}").await;
    let expected: Vec<String> = names.iter().map(|name| format!("{name}:2")).collect();
    assert_eq!(outputs(&app.ask("l", json!({})).await), expected);
}
