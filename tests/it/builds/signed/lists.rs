//! Lists under keys that changed: a tag whose image was proven and is not any more never leaves the list unnoticed. Other reasons to leave
//! a tag out are as before.

use serde_json::{Value, json};

use super::{
    super::fake::{Endpoint, Fake, Image, sha},
    folder, proven, replace,
};
use crate::support::{
    Reply, TestApp,
    signing::{BUNDLE, Key},
    upstream::refused,
};

/// What an error says of an image that the present keys do not vouch for.
const GONE: &str = "is no longer signed as the configuration demands";

/// A registry whose tags `1.0.0` and `1.1.0` have the images of `a`, signed by `former` only, and of `b`, signed by both keys.
struct Tags {
    fake: Fake,
    former: Key,
    present: Key,
}

impl Tags {
    async fn start() -> Self {
        let tags = Self { fake: Fake::start().await, former: Key::new(), present: Key::new() };
        tags.fake.push("1.0.0", &Image::of('a'));
        tags.fake.push("1.1.0", &Image::of('b'));
        tags.list(&["1.0.0", "1.1.0"]);
        tags.sign(&tags.former, 'a');
        tags.sign(&tags.former, 'b');
        tags.sign(&tags.present, 'b');
        tags
    }

    /// The tags of the repository.
    fn list(&self, tags: &[&str]) {
        let tags = json!({"name": "org/app", "tags": tags}).to_string();
        self.fake.fail(Endpoint::List, move |request| request.answer(200, "Content-Type: application/json", &tags));
    }

    fn sign(&self, key: &Key, commit: char) {
        let digest = Image::of(commit).digest();
        self.fake.attach(&digest, BUNDLE, &key.provenance(digest.as_str(), &sha(commit)));
    }

    /// The guard accepts every answer, so that what is lost is lost at once.
    fn config(&self, list: &Value, provenance: &Value) -> String {
        self.guarded(list, provenance, &json!({"onEmpty": "allow", "maxShrink": "100%"}))
    }

    fn guarded(&self, list: &Value, provenance: &Value, guard: &Value) -> String {
        let mut backend = proven(&self.fake);
        backend.as_object_mut().unwrap().retain(|key, _| key == "signature" || key == "provenance");
        for (target, more) in [("list", list), ("provenance", provenance)] {
            for (key, value) in more.as_object().unwrap() {
                backend[target][key] = value.clone();
            }
        }
        backend["list"]["repositories"] = json!([format!("{}/org/app", self.fake.host())]);
        let more = json!({"output": {"tag": "{{ tag }}"}, "lineage": ["branch"], "guard": guard});
        super::config(&self.fake, &backend, more)
    }

    /// A gateway that has answered both tags under the former key, and now has the present one.
    async fn after_a_change(&self, list: &Value) -> TestApp {
        let app = TestApp::start_in(folder(&self.former), &self.config(list, &json!({}))).await;
        assert_eq!(tags(&ask(&app, json!({})).await), ["1.1.0", "1.0.0"]);
        replace(app.folder.path(), &self.present).await;
        app
    }
}

fn semver() -> Value {
    json!({"tags": {"semver": "*"}})
}

async fn ask(app: &TestApp, mut parameters: Value) -> Reply {
    app.clock.advance(std::time::Duration::from_mins(7));
    parameters["branch"] = "feat/1".into();
    app.ask("a", parameters).await
}

fn tags(reply: &Reply) -> Vec<String> {
    let sets: Value = serde_json::from_str(&reply.sets()).unwrap();
    sets.as_array().unwrap().iter().map(|set| set["tag"].as_str().unwrap().to_owned()).collect()
}

/// Whatever ends it, the error lasts until then, also over a restart.
#[tokio::test]
async fn a_removed_key_makes_the_list_an_error() {
    let registry = Tags::start().await;
    let text = format!("cache: {{ path: answers.redb }}\n{}", registry.config(&semver(), &json!({})));
    let app = TestApp::start_in(folder(&registry.former), &text).await;
    app.app.open_disk();
    assert_eq!(tags(&ask(&app, json!({})).await), ["1.1.0", "1.0.0"]);
    replace(app.folder.path(), &registry.present).await;
    for says in [GONE, "1.0.0", "sign it again", "delete the tag"] {
        refused(&ask(&app, json!({})).await, 502, "backend_failed", says);
    }
    let app = app.restart(async |_| {}).await;
    app.app.open_disk();
    refused(&ask(&app, json!({})).await, 502, "backend_failed", GONE);
    // The former key comes back.
    replace(app.folder.path(), &registry.former).await;
    assert_eq!(tags(&ask(&app, json!({})).await), ["1.1.0", "1.0.0"]);
    // Gone again, and the owner of the present key signs.
    replace(app.folder.path(), &registry.present).await;
    refused(&ask(&app, json!({})).await, 502, "backend_failed", GONE);
    registry.sign(&registry.present, 'a');
    assert_eq!(tags(&ask(&app, json!({})).await), ["1.1.0", "1.0.0"]);
}

/// A list is held, since it lost a tag, and the last good one is served meanwhile: not under other keys than its own.
#[tokio::test]
async fn a_held_list_brings_no_removed_key_back() {
    let registry = Tags::start().await;
    let text = registry.guarded(&semver(), &json!({}), &json!({}));
    let app = TestApp::start_in(folder(&registry.former), &text).await;
    assert_eq!(tags(&ask(&app, json!({})).await), ["1.1.0", "1.0.0"]);
    registry.list(&["1.1.0"]);
    assert_eq!(tags(&ask(&app, json!({})).await), ["1.1.0", "1.0.0"]);
    assert_eq!(app.operate("/admin/held", None).await.json()["held"].as_array().unwrap().len(), 1);
    replace(app.folder.path(), &registry.present).await;
    let reply = ask(&app, json!({})).await;
    assert!(reply.status == 503 && !reply.text().contains("\"parameters\""), "{}: {}", reply.status, reply.text());
    // The held list is one that the present key vouches for, so it is accepted as any other.
    let mut calls = 0;
    while ask(&app, json!({})).await.status != 200 {
        calls += 1;
        assert!(calls < 10, "it is never accepted");
    }
    assert_eq!(tags(&ask(&app, json!({})).await), ["1.1.0"]);
}

/// It is not known of one tag whether it is signed. The whole list is an error, however many tags are signed.
#[tokio::test]
async fn an_unknown_tag_makes_the_list_unknown() {
    let registry = Tags::start().await;
    registry.list(&["1.0.0", "1.1.0", "1.2.0"]);
    let (image, stranger) = (Image::of('c'), Key::new());
    registry.fake.push("1.2.0", &image);
    let document = stranger.provenance(image.digest().as_str(), &sha('c'));
    registry.fake.damage(&registry.fake.attach(&image.digest(), BUNDLE, &document), 500);
    for list in [semver(), json!({"tags": {"semver": "*"}, "limit": 1})] {
        let app = TestApp::start_in(folder(&registry.former), &registry.config(&list, &json!({}))).await;
        let reply = ask(&app, json!({})).await;
        assert!(reply.status >= 500 && reply.text().contains("1.2.0"), "{}: {}", reply.status, reply.text());
    }
    registry.sign(&registry.former, 'c');
    let app = TestApp::start_in(folder(&registry.former), &registry.config(&semver(), &json!({}))).await;
    assert_eq!(tags(&ask(&app, json!({})).await), ["1.2.0", "1.1.0", "1.0.0"]);
}

/// No tag is proven any more: never an empty list.
#[tokio::test]
async fn a_list_never_gets_empty_by_a_removed_key() {
    let registry = Tags::start().await;
    let app = registry.after_a_change(&semver()).await;
    replace(app.folder.path(), &Key::new()).await;
    refused(&ask(&app, json!({})).await, 502, "backend_failed", GONE);
}

/// The operator demands another workflow, which built none of the images. Nothing is lost by that either.
#[tokio::test]
async fn another_policy_makes_the_list_an_error() {
    let registry = Tags::start().await;
    let text = |list: &Value, provenance: &Value| {
        format!("cache: {{ path: answers.redb }}\n{}", registry.config(list, provenance))
    };
    let other = json!({"workflow": ".github/workflows/other.yml"});
    let app = TestApp::start_in(folder(&registry.former), &text(&semver(), &json!({}))).await;
    app.app.open_disk();
    assert_eq!(tags(&ask(&app, json!({})).await), ["1.1.0", "1.0.0"]);
    let app = app.restart_as(&text(&semver(), &other)).await;
    app.app.open_disk();
    refused(&ask(&app, json!({})).await, 502, "backend_failed", GONE);
    // Left out by name.
    let ignored = json!({"tags": {"semver": "*", "ignore": ["1.0.0", "1.1.0"]}});
    let app = app.restart_as(&text(&ignored, &other)).await;
    app.app.open_disk();
    assert_eq!(tags(&ask(&app, json!({})).await), Vec::<String>::new());
}

/// Tags that leave the list for another reason than the keys leave it as before.
#[tokio::test]
async fn a_tag_may_leave_a_list_for_other_reasons() {
    // Deleted.
    let registry = Tags::start().await;
    let app = registry.after_a_change(&semver()).await;
    registry.list(&["1.1.0"]);
    assert_eq!(tags(&ask(&app, json!({})).await), ["1.1.0"]);
    // Moved to an image that nobody signed.
    let registry = Tags::start().await;
    let app = registry.after_a_change(&semver()).await;
    registry.fake.push("1.0.0", &Image::of('c'));
    assert_eq!(tags(&ask(&app, json!({})).await), ["1.1.0"]);
    // Its digest under another tag is still the image that was proven.
    registry.list(&["1.0.0", "1.1.0", "1.2.0"]);
    registry.fake.push("1.2.0", &Image::of('b'));
    registry.sign(&registry.present, 'c');
    assert_eq!(tags(&ask(&app, json!({})).await), ["1.2.0", "1.1.0", "1.0.0"]);
    replace(app.folder.path(), &registry.former).await;
    registry.list(&["2.0.0"]);
    registry.fake.push("2.0.0", &Image::of('c'));
    refused(&ask(&app, json!({})).await, 502, "backend_failed", GONE);
    // Beyond the limit.
    let registry = Tags::start().await;
    let limited = json!({"tags": {"semver": "*"}, "limit": 2});
    let app = registry.after_a_change(&limited).await;
    registry.list(&["1.0.0", "1.1.0", "1.2.0"]);
    registry.fake.push("1.2.0", &Image::of('d'));
    registry.sign(&registry.present, 'd');
    assert_eq!(tags(&ask(&app, json!({})).await), ["1.2.0", "1.1.0"]);
}

/// The question is about another commit than the last answer of its lineage. The image of that one is proven for its own commit, or not.
#[tokio::test]
async fn another_commit_is_no_change_of_keys() {
    let registry = Tags::start().await;
    let text = registry.config(&semver(), &json!({"commit": "{{ params.sha }}"}));
    let asked = |commit: char| json!({"sha": sha(commit)});
    let app = TestApp::start_in(folder(&registry.former), &text).await;
    assert_eq!(tags(&ask(&app, asked('a')).await), ["1.0.0"]);
    assert_eq!(tags(&ask(&app, asked('b')).await), ["1.1.0"]);
    let app = TestApp::start_in(folder(&registry.former), &text).await;
    assert_eq!(tags(&ask(&app, asked('a')).await), ["1.0.0"]);
    replace(app.folder.path(), &registry.present).await;
    refused(&ask(&app, asked('b')).await, 502, "backend_failed", GONE);
    registry.sign(&registry.present, 'a');
    assert_eq!(tags(&ask(&app, asked('b')).await), ["1.1.0"]);
}

/// A forged signature is refused, and named first however many tags are only not signed.
#[tokio::test]
async fn a_forged_tag_is_refused() {
    let registry = Tags::start().await;
    let names: Vec<String> = (0..12).map(|number| format!("2.0.{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        registry.fake.push(name, &Image::numbered(number + 1));
    }
    let forged = Image::numbered(1).digest();
    let of_other = registry.former.provenance(Image::of('a').digest().as_str(), &sha('a'));
    registry.fake.attach(&forged, BUNDLE, &of_other);
    let all: Vec<&str> = ["1.0.0"].into_iter().chain(names.iter().map(String::as_str)).collect();
    registry.list(&all);
    let app = TestApp::start_in(folder(&registry.former), &registry.config(&semver(), &json!({}))).await;
    assert_eq!(tags(&ask(&app, json!({})).await), ["1.0.0"]);
    assert_eq!(app.metric("appset_gateway_refused_images_total{route=\"a\"}").await, 1);
    let answers = app.operate("/admin/answers", None).await.json();
    let evidence = answers["answers"][0]["evidence"].as_array().unwrap();
    assert!(
        evidence[1]["verdict"] == "refused" && evidence[1]["query"].as_str().unwrap().contains("2.0.0"),
        "{answers}"
    );
}
