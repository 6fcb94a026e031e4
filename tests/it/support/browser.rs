//! A real browser: Debian's chromium, led by chromedriver over HTTP (<https://www.w3.org/TR/webdriver2/>). It has an empty profile and
//! reaches loopback only.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// Keys, as `/actions` names them.
pub(crate) const TAB: &str = "\u{e004}";
pub(crate) const ENTER: &str = "\u{e007}";

/// The key of elements in the driver's answers.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with one window. It ends when this is dropped.
pub(crate) struct Browser {
    driver: Child,
    client: reqwest::Client,
    session: String,
    profile: TempDir,
}

impl Browser {
    /// A browser that has visited nothing.
    pub(crate) async fn start() -> Self {
        // The driver takes a free port of IPv4, and ends if another test has this one of IPv6.
        let started = (0..5).find_map(|_| start_driver().inspect_err(|output| eprintln!("{output}")).ok());
        let (driver, port) = started.expect("chromedriver starts");
        let profile = tempfile::tempdir().unwrap();
        let folder = format!("--user-data-dir={}", profile.path().display());
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--hide-scrollbars",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
            &folder,
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments}, "goog:loggingPrefs": {"browser": "ALL"},
            "unhandledPromptBehavior": "ignore",
        }}});
        let mut browser = Self {
            driver,
            client: reqwest::Client::builder().no_proxy().build().unwrap(),
            session: format!("http://127.0.0.1:{port}/session"),
            profile,
        };
        let opened = browser.post("", wanted).await;
        browser.session = format!("{}/{}", browser.session, opened["sessionId"].as_str().unwrap());
        browser
    }

    async fn answer(&self, request: reqwest::RequestBuilder) -> Result<Value, Value> {
        let reply = request.timeout(Duration::from_mins(1)).send().await.unwrap();
        let is_good = reply.status().is_success();
        let mut answer: Value = serde_json::from_slice(&reply.bytes().await.unwrap()).unwrap();
        if is_good { Ok(answer["value"].take()) } else { Err(answer["value"].take()) }
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let request = self.client.post(format!("{}{path}", self.session)).body(body.to_string());
        self.answer(request).await.unwrap_or_else(|error| panic!("{path} {body}: {error}"))
    }

    /// Opens `url`.
    pub(crate) async fn open(&self, url: &str) {
        self.post("/url", json!({ "url": url })).await;
    }

    /// The result of `script`, the body of a function.
    pub(crate) async fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", json!({"script": script, "args": []})).await
    }

    /// A command of the browser's developer tools.
    pub(crate) async fn command(&self, name: &str, parameters: Value) -> Value {
        self.post("/goog/cdp/execute", json!({"cmd": name, "params": parameters})).await
    }

    /// Shows pages as a window of this width, and in this colour scheme: `light` or `dark`.
    pub(crate) async fn looks(&self, width: u32, scheme: &str) {
        let size = json!({"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500});
        self.command("Emulation.setDeviceMetricsOverride", size).await;
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.command("Emulation.setEmulatedMedia", features).await;
    }

    /// Clicks the first element that `selector` (CSS) finds.
    pub(crate) async fn click(&self, selector: &str) {
        let element = self.find(selector).await;
        self.post(&format!("/element/{element}/click"), json!({})).await;
    }

    /// Types into the first element that `selector` finds.
    pub(crate) async fn write(&self, selector: &str, text: &str) {
        let element = self.find(selector).await;
        self.post(&format!("/element/{element}/value"), json!({ "text": text })).await;
    }

    async fn find(&self, selector: &str) -> String {
        let found = self.post("/element", json!({"using": "css selector", "value": selector})).await;
        found[ELEMENT].as_str().unwrap().to_owned()
    }

    /// Presses keys, wherever the focus is.
    pub(crate) async fn press(&self, keys: &str) {
        let actions = keys.chars().flat_map(|key| {
            [json!({"type": "keyDown", "value": key.to_string()}), json!({"type": "keyUp", "value": key.to_string()})]
        });
        let actions: Vec<Value> = actions.collect();
        self.post("/actions", json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})).await;
    }

    /// Waits until `script` returns true.
    pub(crate) async fn wait_for(&self, script: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        while self.run(script).await != true {
            assert!(Instant::now() < until, "{script}: {}", self.run("return document.body.innerText").await);
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// What pages have written to the console since the last call: errors and warnings.
    pub(crate) async fn complaints(&self) -> Vec<String> {
        let lines = self.post("/se/log", json!({"type": "browser"})).await;
        lines.as_array().unwrap().iter().map(|line| line["message"].to_string()).collect()
    }

    /// Whether a page shows an alert, which only a script can do.
    pub(crate) async fn shows_alert(&self) -> bool {
        self.answer(self.client.get(format!("{}/alert/text", self.session))).await.is_ok()
    }

    /// Writes a picture of the whole page to `file`.
    pub(crate) async fn picture(&self, file: &Path) {
        let size = self.command("Page.getLayoutMetrics", json!({})).await["cssContentSize"].clone();
        let clip = json!({"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1});
        let picture = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let picture = self.command("Page.captureScreenshot", picture).await;
        let bytes = BASE64_STANDARD.decode(picture["data"].as_str().unwrap()).unwrap();
        std::fs::write(file, bytes).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let kill = |pid: u32| {
            let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        };
        // A driver that ends in order may leave its browser behind.
        kill(self.driver.id());
        let _ = self.driver.wait();
        browsers_of(self.profile.path()).into_iter().for_each(kill);
    }
}

/// A driver and its port, or what it wrote before it ended.
fn start_driver() -> Result<(Child, String), String> {
    let mut driver = Command::new("chromedriver")
        .arg("--port=0")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("this test needs Debian's packages chromium and chromium-driver");
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
    let mut written = String::new();
    for line in lines.by_ref() {
        let line = line.unwrap();
        if let Some((_, port)) =
            line.strip_suffix('.').and_then(|line| line.rsplit_once("started successfully on port "))
        {
            let port = port.to_owned();
            std::thread::spawn(move || lines.for_each(drop));
            return Ok((driver, port));
        }
        written.push_str(&line);
        written.push('\n');
    }
    let _ = driver.wait();
    Err(written)
}

/// The processes with this profile, which only one browser has. Its helpers end with it.
fn browsers_of(profile: &Path) -> Vec<u32> {
    let argument = format!("--user-data-dir={}", profile.display());
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_own = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|each| each == argument.as_bytes())
    };
    all.filter(is_own).collect()
}
