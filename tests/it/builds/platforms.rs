//! Images for several platforms: the required ones, the selected one, and the label that counts.

use serde_json::{Value, json};

use super::{
    ask,
    fake::{Fake, Image, sha},
    start,
};
use crate::support::TestApp;

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
