//! Images for several platforms: the required ones, the selected one, and the label that counts.

use oci::Digest;
use serde_json::{Value, json};

use super::{
    ask,
    fake::{Fake, Image, sha},
    start,
};
use crate::support::{TestApp, check::errors, upstream::refused};

#[tokio::test]
async fn platforms_are_required_and_picked() {
    let fake = Fake::start().await;
    let image = |more: Value| {
        let mut image = json!({"image": format!("{}/org/app:{{{{ params.branch }}}}", fake.host())});
        image.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"images": {"app": image}})
    };
    let output = json!({"output": {"digest": "{{ app.digest }}"}, "lineage": null, "cache": {"ttl": "0s"}});
    let digest = async |app: &TestApp, tag: &str| {
        let sets: Value = serde_json::from_str(&app.ask("a", json!({"branch": tag})).await.sets()).unwrap();
        sets[0]["digest"].as_str().map(str::to_owned)
    };
    let both = fake.push_index("both", &[("linux/amd64", 'a'), ("linux/arm64", 'a')]);
    fake.push_index("one", &[("linux/amd64", 'b')]);
    fake.push("plain", &Image::of('c'));
    let all = start(&fake, &image(json!({"requirePlatforms": ["linux/amd64", "linux/arm64"]})), output.clone()).await;
    assert_eq!(digest(&all, "both").await.unwrap(), both[0].as_str());
    assert_eq!(digest(&all, "one").await, None);
    assert_eq!(digest(&all, "plain").await, None);
    let arm = start(&fake, &image(json!({"platform": "linux/arm64"})), output.clone()).await;
    assert_eq!(digest(&arm, "both").await.unwrap(), both[2].as_str());
    assert_eq!(digest(&arm, "one").await, None);
    let amd = start(&fake, &image(json!({"platform": "linux/amd64"})), output).await;
    assert_eq!(digest(&amd, "plain").await.unwrap(), Image::of('c').digest().as_str());
}

/// The label of the deployed platform's image counts.
#[tokio::test]
async fn the_label_of_the_deployed_platform_names_the_commit() {
    let fake = Fake::start().await;
    let mixed = fake.push_index("mixed", &[("linux/amd64", 'b'), ("linux/arm64", 'a')]);
    let ask = async |more: Value, commit: char| {
        let mut image = json!({"image": format!("{}/org/app:{{{{ params.branch }}}}", fake.host())});
        image.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let backend = json!({"images": {"app": image}, "revision": {"expect": "{{ params.head_sha }}"}});
        let app = start(&fake, &backend, json!({"lineage": null})).await;
        let reply = self::ask(&app, "mixed", commit).await;
        let sets: Value = serde_json::from_str(&reply.sets()).unwrap();
        sets[0]["digest"].as_str().map(|digest| (digest.to_owned(), sets[0]["revision"].as_str().unwrap().to_owned()))
    };
    let arm = json!({"platform": "linux/arm64"});
    assert_eq!(ask(arm.clone(), 'a').await, Some((mixed[2].to_string(), sha('a'))));
    assert_eq!(ask(arm, 'b').await, None);
    assert_eq!(ask(json!({"platform": "linux/amd64"}), 'b').await, Some((mixed[1].to_string(), sha('b'))));
    assert_eq!(ask(json!({"requirePlatforms": ["linux/amd64", "linux/arm64"]}), 'b').await, None);
    assert_eq!(ask(json!({"requirePlatforms": ["linux/amd64"]}), 'b').await, Some((mixed[0].to_string(), sha('b'))));
}

const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// The entry of an image for a platform.
fn for_platform(os: &str, architecture: &str, variant: Option<&str>) -> Value {
    let mut platform = json!({"os": os, "architecture": architecture});
    platform.as_object_mut().unwrap().extend(variant.map(|variant| ("variant".to_owned(), json!(variant))));
    json!({"platform": platform})
}

/// A registry of images under `tag`, and what its answer is for a configuration.
async fn answered(fake: &Fake, more: &Value, parameters: Value) -> crate::support::Reply {
    let mut image = json!({"image": format!("{}/org/app:{{{{ params.branch }}}}", fake.host())});
    image.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let output = json!({"output": {"digest": "{{ app.digest }}"}, "lineage": null});
    start(fake, &json!({"images": {"app": image}}), output).await.ask("a", parameters).await
}

async fn digest_of(fake: &Fake, tag: &str, more: &Value) -> Option<String> {
    let sets: Value = serde_json::from_str(&answered(fake, more, json!({"branch": tag})).await.sets()).unwrap();
    sets[0]["digest"].as_str().map(str::to_owned)
}

/// A comparison as text would prove images missing that are there.
#[tokio::test]
async fn platforms_are_compared_by_their_meaning() {
    let fake = Fake::start().await;
    let image = |name: &str| fake.keep_image(&json!({"os": "linux", "architecture": "amd64", "name": name}));
    let (amd, arm64, v7, v6) = (image("amd64"), image("arm64"), image("v7"), image("v6"));
    let index = fake.keep_index(&[
        (&v6, for_platform("linux", "arm", Some("v6"))),
        (&amd, for_platform("linux", "amd64", None)),
        (&arm64, for_platform("linux", "arm64", None)),
        (&v7, for_platform("linux", "arm", Some("v7"))),
    ]);
    fake.tag("all", &index);
    fake.tag("v6", &fake.keep_index(&[(&v6, for_platform("linux", "arm", Some("6")))]));
    fake.tag("old", &fake.keep_index(&[(&amd, for_platform("Linux", "x86_64", Some("v1")))]));
    fake.tag("single", &fake.keep_image(&json!({"os": "linux", "architecture": "aarch64", "variant": "v8"})));
    for (tag, platform, expected) in [
        ("all", "linux/arm64/v8", Some(&arm64)),
        ("all", "linux/aarch64", Some(&arm64)),
        ("all", "linux/x86_64", Some(&amd)),
        ("all", "Linux/AMD64", Some(&amd)),
        ("all", "linux/amd64/v3", Some(&amd)),
        ("all", "linux/arm", Some(&v7)),
        ("all", "linux/arm/v7", Some(&v7)),
        ("all", "linux/arm/v6", Some(&v6)),
        ("all", "linux/arm/v5", None),
        ("v6", "linux/armhf", Some(&v6)),
        ("old", "linux/amd64", Some(&amd)),
        ("all", "linux/386", None),
        ("all", "windows/amd64", None),
    ] {
        let found = digest_of(&fake, tag, &json!({ "platform": platform })).await;
        assert_eq!(found.as_deref(), expected.map(Digest::as_str), "{tag} for {platform}");
        let found = digest_of(&fake, tag, &json!({"requirePlatforms": [platform]})).await;
        assert_eq!(found.is_some(), expected.is_some(), "{tag} with {platform}");
    }
    for (platform, is_there) in [("linux/arm64", true), ("linux/arm64/v8", true), ("linux/amd64", false)] {
        assert_eq!(
            digest_of(&fake, "single", &json!({ "platform": platform })).await.is_some(),
            is_there,
            "{platform}"
        );
    }
}

/// An index may hold indexes, and may leave the platform to the image. What cannot be read is not missing.
#[tokio::test]
async fn images_are_found_wherever_an_index_holds_them() {
    let fake = Fake::start().await;
    let image = |architecture: &str| fake.keep_image(&json!({"os": "linux", "architecture": architecture}));
    let (amd, arm, nameless) = (image("amd64"), image("arm64"), fake.keep_image(&json!({"name": "nameless"})));
    let of_amd = || for_platform("linux", "amd64", None);
    let nested = |digest, media_type: &str| (digest, json!({ "mediaType": media_type }));
    let inner = fake.keep_index(&[(&arm, for_platform("linux", "arm64", None))]);
    fake.tag("nested", &fake.keep_index(&[(&amd, of_amd()), nested(&inner, INDEX)]));
    fake.tag(
        "blank",
        &fake.keep_index(&[(&amd, of_amd()), (&arm, json!({"platform": {"os": "", "architecture": ""}}))]),
    );
    fake.tag("bare", &fake.keep_index(&[(&amd, json!({})), (&arm, json!({"mediaType": ""}))]));
    fake.tag("nameless", &fake.keep_index(&[(&amd, of_amd()), (&nameless, json!({}))]));
    fake.tag("alone", &nameless);
    fake.tag("lost", &fake.keep_index(&[(&amd, of_amd()), (&fake.keep_image(&json!({"is": "lost"})), json!({}))]));
    fake.lose(&fake.keep_image(&json!({"is": "lost"})));
    let mut deep = inner.clone();
    for depth in 0..6 {
        deep = fake.keep_index(&[(&deep, json!({"mediaType": INDEX, "annotations": {"depth": depth.to_string()}}))]);
    }
    fake.tag("deep", &fake.keep_index(&[(&amd, of_amd()), nested(&deep, INDEX)]));
    for tag in ["nested", "blank", "bare"] {
        assert_eq!(
            digest_of(&fake, tag, &json!({"platform": "linux/arm64"})).await.as_deref(),
            Some(arm.as_str()),
            "{tag}"
        );
        assert!(
            digest_of(&fake, tag, &json!({"requirePlatforms": ["linux/arm64", "linux/amd64"]})).await.is_some(),
            "{tag}"
        );
        assert_eq!(digest_of(&fake, tag, &json!({"platform": "linux/s390x"})).await, None, "{tag}");
    }
    for (tag, says) in [
        ("nameless", "does not name its platform"),
        ("alone", "does not name its platform"),
        ("deep", "more than 4 deep"),
        ("lost", "404"),
    ] {
        let reply = answered(&fake, &json!({"platform": "linux/arm64"}), json!({"branch": tag})).await;
        assert_eq!(reply.status, 502, "{tag}: {}", reply.text());
        assert!(reply.text().contains(says), "{tag}: {}", reply.text());
        // Not asked for if the index names the platform.
        if tag != "alone" {
            assert_eq!(
                digest_of(&fake, tag, &json!({"platform": "linux/amd64"})).await.as_deref(),
                Some(amd.as_str()),
                "{tag}"
            );
        }
    }
}

/// What no image can be for is found by `check`, and is an error of the caller if it comes from there.
#[tokio::test]
async fn an_impossible_platform_is_refused() {
    for (platform, says) in [
        ("linux/amd46", "did you mean `amd64`?"),
        ("linux/{{ params.arch", "unexpected end of input"),
        ("unknown/unknown", "no operating system `unknown`"),
    ] {
        let image =
            json!({"image": "r.example/app:1", "platform": platform, "requirePlatforms": ["linux/amd64", platform]});
        let found = errors(&json!({"images": {"app": image}}));
        let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["images.app.platform", "images.app.requirePlatforms[1]"], "{platform}: {found:?}");
        assert!(found.iter().all(|(_, message)| message.contains(says)), "{found:?}");
    }
    let fake = Fake::start().await;
    let both = fake.push_index("both", &[("linux/amd64", 'a'), ("linux/arm64", 'a')]);
    let by_caller = json!({"platform": "linux/{{ params.arch }}"});
    let ask = async |arch: &str| answered(&fake, &by_caller, json!({"branch": "both", "arch": arch})).await;
    assert!(ask("aarch64").await.sets().contains(both[2].as_str()));
    for (arch, says) in
        [("amd46", "did you mean `amd64`?"), ("", "is not a platform"), ("amd64/v1/x", "is not a platform")]
    {
        refused(&ask(arch).await, 422, "invalid_input", says);
    }
    assert_eq!(ask("s390x").await.sets(), "[]");
}
