//! Invalid questions: an invalid commit id, and a branch that makes an impossible tag.

use serde_json::{Value, json};

use super::{
    ask, config,
    fake::{Endpoint, Fake, Image, sha},
    previews, served_commit, start,
};
use crate::support::{TestApp, upstream::refused};

/// A shortened or invalid commit id gets no earlier images, whatever was built in its lineage.
#[tokio::test]
async fn an_invalid_commit_id_gets_no_earlier_images() {
    let fake = Fake::start().await;
    fake.push("feat-1", &Image::of('a'));
    fake.run('a', "completed", Some("success"));
    let app = start(&fake, &previews(&fake), json!({})).await;
    assert_eq!(served_commit(&ask(&app, "feat/1", 'a').await), "a");
    let full = sha('a');
    for (commit, says) in
        [(&full[..8], "shortened"), (&full[..39], "shortened"), ("main", "not a commit"), ("", "is empty")]
    {
        // Also during the pause after its failure.
        for _ in 0..2 {
            let reply = app.ask("a", json!({"branch": "feat/1", "head_sha": commit})).await;
            refused(&reply, 422, "invalid_input", says);
        }
    }
    // A valid commit that is not built yet gets the earlier images as before.
    assert_eq!(served_commit(&ask(&app, "feat/1", 'b').await), "a, stale");
}

/// The failure of one gate does not hide the invalid commit id of another gate.
#[tokio::test]
async fn gates_refuse_invalid_commit_ids() {
    let fake = Fake::start().await;
    fake.push("feat-1", &Image::of('a'));
    fake.run('a', "completed", Some("success"));
    let mut backend = previews(&fake);
    backend.as_object_mut().unwrap().remove("revision");
    let verdict = "params.head_sha.size() == 40 ? 'passed' : 'failed'";
    let http = json!({"http": {"url": format!("{}/repos/x", fake.url()), "verdict": verdict}});
    let run = json!({"id": 1, "name": "Build", "path": ".github/workflows/build.yml", "event": "push", "head_sha": sha('a'),
        "status": "completed", "conclusion": "success"});
    let runs = json!({"total_count": 1, "workflow_runs": [run]}).to_string();
    fake.fail(Endpoint::Gate, move |request| {
        let body = if request.target.contains("/actions/") { &*runs } else { "{}" };
        request.answer(200, "Content-Type: application/json", body)
    });
    backend["gate"] = json!({"all": [http, backend["gate"]]});
    let app = start(&fake, &backend, json!({})).await;
    let parameters = |commit: &str| json!({"branch": "feat/1", "head_sha": commit});
    assert_eq!(app.ask("a", parameters(&sha('a'))).await.status, 200);
    refused(&app.ask("a", parameters("abc")).await, 422, "invalid_input", "shortened");
}

/// The images of previews by a template of the tag, without a label or a gate.
fn by_tag(fake: &Fake, tag: &str) -> Value {
    json!({"images": {"app": {"image": format!("{}/org/app:{tag}", fake.host())}}})
}

async fn call(app: &TestApp, branch: &str) -> crate::support::Reply {
    app.ask("a", json!({"branch": branch})).await
}

/// One pull request whose branch makes an impossible tag must not stop the others.
#[tokio::test]
async fn an_image_with_an_impossible_tag_is_proven_absent() {
    let long = "x".repeat(129);
    for tag in ["{{ params.branch | tag }}", "{{ params.branch }}", "pr-{{ params.branch }}"] {
        let fake = Fake::start().await;
        fake.push(if tag.starts_with("pr") { "pr-main" } else { "main" }, &Image::of('a'));
        let app =
            start(&fake, &by_tag(&fake, tag), json!({"output": {"digest": "{{ app.digest }}"}, "lineage": null})).await;
        assert!(call(&app, "main").await.sets().contains("sha256:"), "{tag}");
        let asked = fake.asked().len();
        for branch in ["ü", "日本", &long] {
            assert_eq!(call(&app, branch).await.sets(), "[]", "{tag}: {branch}");
        }
        if !tag.contains("| tag") {
            assert_eq!(call(&app, "feat/x").await.sets(), "[]", "{tag}");
        }
        assert_eq!(fake.asked().len(), asked, "{tag}: nobody was asked");
        let answers = app.operate("/admin/answers?route=a", None).await.text();
        assert!(answers.contains("there can be no such image"), "{answers}");
        // An empty or missing parameter is an error in the ApplicationSet.
        refused(&call(&app, "").await, 422, "invalid_input", "");
        refused(&app.ask("a", json!({})).await, 422, "invalid_input", "params.branch");
    }
}

/// CI makes `-123-fix` of `#123-fix`, which is no tag, and the tag `pr--123-fix` with a prefix. `123-fix` is another branch's.
#[tokio::test]
async fn a_branch_never_gets_the_tag_of_another() {
    let fake = Fake::start().await;
    for tag in ["123-fix", "ber-x", "pr-123-fix", "x"] {
        fake.push(tag, &Image::of('a'));
    }
    fake.push("pr--123-fix", &Image::of('b'));
    let output = json!({"output": {"digest": "{{ app.digest }}"}, "lineage": null});
    let app = start(&fake, &by_tag(&fake, "{{ params.branch | tag }}"), output.clone()).await;
    for branch in ["#123-fix", "Über-x", "-x", ".x", "🎉x"] {
        assert_eq!(call(&app, branch).await.sets(), "[]", "{branch}");
    }
    assert_eq!(fake.asked().len(), 0, "nobody was asked");
    let app = start(&fake, &by_tag(&fake, "pr-{{ params.branch | tag }}"), output.clone()).await;
    assert_eq!(call(&app, "#124-fix").await.sets(), "[]");
    assert!(call(&app, "#123-fix").await.sets().contains(Image::of('b').digest().as_str()));
    // GitLab makes the tag `123-fix` of it.
    let app = start(&fake, &by_tag(&fake, "{{ params.branch | ref_slug }}"), output).await;
    assert!(call(&app, "#123-fix").await.sets().contains(Image::of('a').digest().as_str()));
}

/// Also with a gate and a lineage: the last build is served, as for any missing image.
#[tokio::test]
async fn a_branch_with_an_impossible_tag_is_treated_as_not_built() {
    let fake = Fake::start().await;
    fake.push("feat-1", &Image::of('a'));
    fake.run('a', "completed", Some("success"));
    let app = start(&fake, &previews(&fake), json!({"lineage": ["number"]})).await;
    let question = |branch: &str, commit| json!({"branch": branch, "number": 7, "head_sha": sha(commit)});
    assert_eq!(served_commit(&app.ask("a", question("feat/1", 'a')).await), "a");
    assert_eq!(served_commit(&app.ask("a", question("ü", 'a')).await), "a, stale");
    let other = json!({"branch": "ü", "number": 8, "head_sha": sha('a')});
    assert_eq!(served_commit(&app.ask("a", other).await), "nothing");
}

#[tokio::test]
async fn without_omit_an_impossible_tag_is_invalid() {
    let fake = Fake::start().await;
    let placeholder = format!("{}/org/app:x@{}", fake.host(), Image::of('c').digest());
    for more in [json!({"onMissing": "error"}), json!({"onMissing": "placeholder"})] {
        let mut backend = by_tag(&fake, "{{ params.branch | tag }}");
        backend.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        if more["onMissing"] == "placeholder" {
            backend["images"]["app"]["placeholder"] = json!(placeholder);
        }
        let app = start(&fake, &backend, json!({"output": {"digest": "{{ app.digest }}"}})).await;
        refused(&call(&app, "ü").await, 422, "invalid_input", "starts with none of `.` and `-`");
    }
    // A commit that makes an impossible tag and an impossible repository name are invalid, too.
    let backend = by_tag(&fake, "{{ params.head_sha }}");
    let app = start(&fake, &backend, json!({"output": {"digest": "{{ app.digest }}"}})).await;
    refused(&app.ask("a", json!({"branch": "x", "head_sha": "ü"})).await, 422, "invalid_input", "cannot be in");
    let mut backend = by_tag(&fake, "1");
    backend["images"]["app"]["image"] = json!(format!("{}/org/{{{{ params.branch }}}}:1", fake.host()));
    let app = TestApp::start(&config(&fake, &backend, json!({"output": {"digest": "{{ app.digest }}"}}))).await;
    for name in ["ü", "Front"] {
        refused(&call(&app, name).await, 422, "invalid_input", "");
    }
}
