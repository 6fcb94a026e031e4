//! The page in a real browser: what people see, at two widths, in two colour schemes, by keyboard, and without scripts.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::json;

use super::{
    ADMIN_TOKEN, VIEWER_TOKEN,
    scene::{HOSTILE, Scene},
};
use crate::support::browser::{Browser, ENTER, TAB};

/// Where the pictures are.
fn pictures() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/screenshots");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The views, each with a name for its picture.
const VIEWS: [(&str, &str); 7] = [
    ("overview", "/"),
    ("held", "/held"),
    ("explain", "/explain"),
    ("routes", "/routes"),
    ("sources", "/sources"),
    ("events", "/events"),
    ("configuration", "/configuration"),
];

fn url(scene: &Scene, path: &str) -> String {
    format!("http://localhost:{}{path}", scene.app.admin.port())
}

async fn sign_in(browser: &Browser, scene: &Scene, token: &str) {
    browser.open(&url(scene, "/login")).await;
    browser.write("#token", token).await;
    browser.click("button[type=submit]").await;
    browser.wait_for("return location.pathname === '/' && !!document.querySelector('nav')").await;
}

/// Checks what holds for every view, whatever it shows.
async fn is_sound(browser: &Browser, of: &str) {
    let widths =
        browser.run("return [document.documentElement.scrollWidth, document.documentElement.clientWidth]").await;
    assert!(widths[0].as_u64() <= widths[1].as_u64(), "{of} is wider than its window: {widths}");
    assert_eq!(browser.run("return document.querySelectorAll('h1').length").await, 1, "{of}");
    let unnamed = "return [...document.querySelectorAll('input:not([type=hidden], [hidden]), select, textarea')]\
                   .filter(field => !field.labels.length).map(field => field.name)";
    assert_eq!(browser.run(unnamed).await, json!([]), "{of} has a field without a label");
    let unclear = "return [...document.querySelectorAll('button, a')].filter(each => !each.innerText.trim()).length";
    assert_eq!(browser.run(unclear).await, 0, "{of} has a button or a link without a text");
    let twice = "const ids = [...document.querySelectorAll('[id]')].map(each => each.id);\
                 return ids.filter((id, index) => ids.indexOf(id) !== index)";
    assert_eq!(browser.run(twice).await, json!([]), "{of} has an id twice");
    assert!(!browser.shows_alert().await, "{of} ran a script of its data");
    let text = browser.run("return document.body.innerText").await;
    assert!(!text.as_str().unwrap().contains('`'), "{of} shows backticks: {text}");
    assert_eq!(browser.complaints().await, Vec::<String>::new(), "{of}");
}

/// The pictures of README.md and docs/page.md show plain data. Copy them from `target/screenshots` to `docs` when the page changes.
#[tokio::test(flavor = "multi_thread")]
async fn the_pictures_of_the_documentation_show_plain_data() {
    let (scene, browser) = (Scene::bad_day_with("feature/search").await, Browser::start().await);
    browser.looks(1280, "light").await;
    sign_in(&browser, &scene, ADMIN_TOKEN).await;
    for (name, path) in [("page-overview", "/"), ("page-held", "/held")] {
        browser.open(&url(&scene, path)).await;
        is_sound(&browser, name).await;
        let shown = browser.run("return document.querySelector('main').innerText").await;
        let shown = shown.as_str().unwrap();
        assert!(shown.contains("feature/search") && !shown.contains("onerror"), "{name}: {shown}");
        let acceptance = "const line = document.querySelector('.acceptance');\
                          return [line.innerText, getComputedStyle(line).color]";
        let acceptance = browser.run(acceptance).await;
        let text = acceptance[0].as_str().unwrap();
        let is_time = text.strip_prefix("Accepted at ").is_some_and(|rest| rest.contains(':'));
        assert!(is_time && text.ends_with(" UTC unless you reject it or the source changes"), "{text}");
        assert_eq!(acceptance[1], "rgb(168, 35, 27)", "it is red");
        let looks = "return [...document.querySelectorAll('.state')].filter(each => each.innerText === 'urgent')\
                     .map(each => getComputedStyle(each).color)";
        let looks = browser.run(looks).await;
        assert!(looks.as_array().unwrap().iter().all(|look| *look == looks[0]), "one word has one look: {looks}");
        browser.picture(&pictures().join(format!("{name}.png"))).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_view_is_sound_at_each_width_and_in_each_scheme() {
    let (scene, browser) = (Scene::bad_day().await, Browser::start().await);
    assert_eq!(scene.tell("a secret of the sender", "shop").await, 202);
    assert_eq!(scene.tell("another secret", "shop").await, 403);
    assert_eq!(scene.tell("a secret of the sender", "unknown").await, 202);
    scene.app.settle().await;
    for (width, scheme) in [(1280, "light"), (390, "light"), (1280, "dark"), (390, "dark")] {
        browser.looks(width, scheme).await;
        let file = |name: &str| pictures().join(format!("{name}-{width}-{scheme}.png"));
        browser.command("Network.clearBrowserCookies", json!({})).await;
        browser.open(&url(&scene, "/")).await;
        is_sound(&browser, "the form to sign in").await;
        browser.picture(&file("sign-in")).await;
        sign_in(&browser, &scene, ADMIN_TOKEN).await;
        for (name, path) in VIEWS {
            browser.open(&url(&scene, path)).await;
            is_sound(&browser, &format!("{name} at {width}, {scheme}")).await;
            browser.picture(&file(name)).await;
        }
        let text = browser.run("return document.body.innerText").await;
        assert!(text.as_str().unwrap().contains("number 1"), "{text}");
        browser.open(&url(&scene, "/held")).await;
        browser.click(".card.held h2 a").await;
        browser.wait_for("return document.querySelector('h1').innerText === 'A held answer'").await;
        is_sound(&browser, "one held answer").await;
        browser.picture(&file("one-held")).await;
        let ground = browser.run("return getComputedStyle(document.body).backgroundColor").await;
        let expected = if scheme == "dark" { "rgb(19, 24, 26)" } else { "rgb(246, 245, 242)" };
        assert_eq!(ground, expected, "{scheme}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_good_day_is_calm() {
    let (scene, browser) = (Scene::good_day().await, Browser::start().await);
    for (width, scheme) in [(1280, "light"), (390, "dark")] {
        browser.looks(width, scheme).await;
        sign_in(&browser, &scene, VIEWER_TOKEN).await;
        let text = browser.run("return document.querySelector('h1').innerText").await;
        assert_eq!(text, "All is well");
        browser.picture(&pictures().join(format!("calm-{width}-{scheme}.png"))).await;
        browser.open(&url(&scene, "/held")).await;
        assert_eq!(browser.run("return document.querySelectorAll('form.decide').length").await, 0, "a viewer");
        is_sound(&browser, "nothing is held").await;
        browser.command("Network.clearBrowserCookies", json!({})).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_works_by_mouse_and_a_hostile_name_does_not_run() {
    let (scene, browser) = (Scene::bad_day().await, Browser::start().await);
    browser.looks(1280, "light").await;
    sign_in(&browser, &scene, ADMIN_TOKEN).await;
    browser.click(".concern.serious a").await;
    browser.wait_for("return location.pathname.startsWith('/held/')").await;
    let shown = browser.run("return document.querySelector('main').innerText").await;
    let shown = shown.as_str().unwrap();
    assert!(shown.contains("fix/<img src=x onerror=alert(1)>\\u{202e}gnp.exe"), "{HOSTILE:?} is text: {shown}");
    assert_eq!(browser.run("return document.querySelectorAll('main img').length").await, 0);
    // A decision without a reason is not sent.
    browser.click(".decide button.danger").await;
    assert_eq!(browser.run("return document.querySelector('input[name=reason]').validity.valueMissing").await, true);
    browser.write("input[name=reason]", "the team has merged these").await;
    browser.click(".decide button.danger").await;
    browser.wait_for("return document.querySelector('h1').innerText === 'Released'").await;
    is_sound(&browser, "the result of a release").await;
    let body = json!({"applicationSetName": "previews", "input": {"parameters": {"repository": "shop"}}});
    let answer = scene.app.call("/branches/api/v1/getparams.execute", &body).await;
    assert_eq!(answer.sets(), r#"[{"name":"main"},{"name":"release-1.29"},{"name":"docs"}]"#);
    browser.click("main a").await;
    browser.wait_for("return document.body.innerText.includes('Nothing is held')").await;
    browser.click(".visitor button").await;
    browser.wait_for("return location.pathname === '/login'").await;
    browser.open(&url(&scene, "/held")).await;
    browser.wait_for("return location.pathname === '/login' && location.search === '?to=%2Fheld'").await;
}

/// Presses Tab until the focused element shows `text`. Each element on the way must show that it has the focus.
async fn tab_to(browser: &Browser, text: &str) {
    for _ in 0..60 {
        browser.press(TAB).await;
        let focused = browser
            .run(
                "const each = document.activeElement, style = getComputedStyle(each);\
                 return [each.innerText || each.name || '', each === document.body || style.outlineStyle !== 'none']",
            )
            .await;
        assert_eq!(focused[1], true, "{focused} does not show that it has the focus");
        if focused[0].as_str().unwrap().contains(text) {
            return;
        }
    }
    panic!("no way to {text} by Tab");
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_works_by_keyboard() {
    let (scene, browser) = (Scene::bad_day().await, Browser::start().await);
    browser.looks(1280, "light").await;
    browser.open(&url(&scene, "/held")).await;
    // The form to sign in has the focus at once.
    browser.press(&format!("{ADMIN_TOKEN}{ENTER}")).await;
    browser.wait_for("return location.pathname === '/held'").await;
    tab_to(&browser, "Skip to the content").await;
    browser.press(ENTER).await;
    browser.wait_for("return document.activeElement.id === 'content'").await;
    tab_to(&browser, "reason").await;
    // Enter in a field does the harmless thing.
    browser.press(&format!("not today{ENTER}")).await;
    browser.wait_for("return document.querySelector('h1').innerText === 'Rejected'").await;
    tab_to(&browser, "Back to the held answers").await;
    browser.press(ENTER).await;
    browser.wait_for("return location.pathname === '/held'").await;
    tab_to(&browser, "reason").await;
    browser.press("they are merged").await;
    tab_to(&browser, "Release").await;
    browser.press(ENTER).await;
    browser.wait_for("return document.querySelector('h1').innerText === 'Released'").await;
    tab_to(&browser, "Sign out").await;
    browser.press(ENTER).await;
    browser.wait_for("return location.pathname === '/login'").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_explained() {
    let (scene, browser) = (Scene::bad_day().await, Browser::start().await);
    browser.looks(1280, "light").await;
    sign_in(&browser, &scene, VIEWER_TOKEN).await;
    browser.open(&url(&scene, "/explain?route=branches")).await;
    // A known question fills the form.
    browser.click("tbody a").await;
    browser.wait_for("return location.search.startsWith('?key=')").await;
    let filled = browser
        .run("return [document.getElementById('route').value, document.getElementById('parameters').value]")
        .await;
    assert!(filled[0] == "branches" && filled[1].as_str().unwrap().contains("repository="), "{filled}");
    is_sound(&browser, "a known question").await;
    browser.picture(&pictures().join("known-1280-light.png")).await;
    browser.click("button.primary").await;
    browser.wait_for("return document.body.innerText.includes('What Argo CD gets')").await;
    is_sound(&browser, "an explanation").await;
    let text = browser.run("return document.querySelector('main').innerText").await;
    for expected in ["The source has an answer", "1 step", "branches", "script"] {
        assert!(text.as_str().unwrap().contains(expected), "{expected}: {text}");
    }
    for (width, scheme) in [(1280, "light"), (390, "dark")] {
        browser.looks(width, scheme).await;
        browser.picture(&pictures().join(format!("explained-{width}-{scheme}.png"))).await;
    }
    // What cannot be asked says why, and keeps what was written.
    browser.run("document.getElementById('parameters').value = 'no equals sign'").await;
    browser.click("button.primary").await;
    browser.wait_for("return document.body.innerText.includes('one a line')").await;
    assert_eq!(browser.run("return document.getElementById('parameters').value").await, "no equals sign");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_works_without_its_script() {
    let (scene, browser) = (Scene::bad_day().await, Browser::start().await);
    browser.looks(390, "light").await;
    browser.command("Emulation.setScriptExecutionDisabled", json!({"value": true})).await;
    sign_in(&browser, &scene, ADMIN_TOKEN).await;
    browser.open(&url(&scene, "/held")).await;
    browser.write("input[name=reason]", "without a script").await;
    browser.click(".decide button:not(.danger)").await;
    browser.wait_for("return document.querySelector('h1').innerText === 'Rejected'").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_is_drawn_again_and_never_while_somebody_types() {
    let (scene, browser) = (Scene::bad_day().await, Browser::start().await);
    browser.looks(1280, "light").await;
    sign_in(&browser, &scene, ADMIN_TOKEN).await;
    browser.run("window.isOld = true; document.activeElement.blur()").await;
    let is_new = "return window.isOld === undefined";
    browser.open(&url(&scene, "/held")).await;
    browser.run("window.isOld = true").await;
    browser.write("input[name=reason]", "half a sen").await;
    tokio::time::sleep(Duration::from_secs(17)).await;
    assert_eq!(browser.run(is_new).await, false, "somebody types");
    assert_eq!(browser.run("return document.querySelector('input[name=reason]').value").await, "half a sen");
    browser.open(&url(&scene, "/routes")).await;
    browser.run("window.isOld = true").await;
    browser.wait_for(is_new).await;
    browser.click("#refresh button").await;
    browser.run("window.isOld = true; document.activeElement.blur()").await;
    tokio::time::sleep(Duration::from_secs(17)).await;
    assert_eq!(browser.run(is_new).await, false, "somebody has stopped it");
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}
