//! The page on the admin listener: who sees it, what its forms do, and the headers that keep it from being misused.

mod browser;
mod forms;
mod headers;
mod scene;
mod sessions;
mod shown;

use std::{path::Path, time::Duration};

use auth::hash_token;
use serde_json::{Value, json};
use url::form_urlencoded;

use crate::support::{
    ADMIN_TOKEN, Reply, TOKEN, TestApp,
    contract::{self, Listener},
    wire::exchange_admin,
};

/// The token of a viewer.
const VIEWER_TOKEN: &str = "viewers-password";

/// A person at the page, whose browser keeps one cookie.
struct Person<'a> {
    app: &'a TestApp,
    host: &'static str,
    /// More headers of each request, each with its line's end.
    headers: String,
    cookie: Option<String>,
}

impl<'a> Person<'a> {
    fn at(app: &'a TestApp) -> Self {
        Self { app, host: "localhost:4356", headers: String::new(), cookie: None }
    }

    /// A person who has signed in with `token`.
    async fn with(app: &'a TestApp, token: &str) -> Self {
        let mut person = Self::at(app);
        let reply = person.sign_in(token).await;
        assert_eq!(reply.status, 303, "{}", reply.text());
        person
    }

    /// The same with more headers.
    fn sending(&self, headers: &str) -> Self {
        Self { headers: headers.to_owned(), cookie: self.cookie.clone(), ..*self }
    }

    async fn send(&self, request: &str) -> Reply {
        let reply = exchange_admin(self.app.admin, request.as_bytes()).await;
        contract::conforms(Listener::Admin, request.as_bytes(), &reply);
        reply
    }

    fn head(&self, method: &str, path: &str) -> String {
        let cookie = self.cookie.as_ref().map(|cookie| format!("Cookie: theme=dark; {cookie}\r\n"));
        format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n{}{}", self.host, self.headers, cookie.unwrap_or_default())
    }

    async fn get(&self, path: &str) -> Reply {
        self.send(&format!("{}\r\n", self.head("GET", path))).await
    }

    async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Reply {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let head = self.head("POST", path);
        let length = body.len();
        let kind = "application/x-www-form-urlencoded";
        self.send(&format!("{head}Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}")).await
    }

    async fn sign_in(&mut self, token: &str) -> Reply {
        let reply = self.post("/login", &[("token", token), ("to", "/held")]).await;
        if let Some(cookie) = reply.header("set-cookie") {
            self.cookie = cookie.split(';').next().map(str::to_owned);
        }
        reply
    }

    /// The first form's hidden field `name` on the view at `path`.
    async fn field(&self, path: &str, name: &str) -> String {
        let html = self.get(path).await.text();
        field(&html, name).unwrap_or_else(|| panic!("no field {name}: {html}"))
    }
}

/// The value of the first hidden field `name`.
fn field(html: &str, name: &str) -> Option<String> {
    let (_, rest) = html.split_once(&format!("name=\"{name}\" value=\""))?;
    Some(rest.split_once('"')?.0.to_owned())
}

/// `auth:` with a caller, an operator, and a viewer.
fn auth() -> String {
    let viewer = format!(", {{ name: eve, role: viewer, sha256: \"{}\" }} ] }}", hash_token(VIEWER_TOKEN));
    TestApp::auth().replace(" ] }", &viewer)
}

/// A gateway with the route `s`, which prints the file `answer`, and the route `few`, whose answers are all held.
async fn gateway() -> TestApp {
    start(&auth()).await
}

async fn start(auth: &str) -> TestApp {
    let folder = tempfile::tempdir().unwrap();
    print(folder.path(), &["a", "b", "c"]);
    TestApp::start_in(folder, &format!("{auth}{}", routes())).await
}

fn routes() -> String {
    let script = json!({"script": {"command": ["cat", "answer"], "allow": {"read": ["."]}}});
    let routes = json!([
        {"name": "s", "backend": script},
        {"name": "all", "backend": {"fixed": {"parameters": [{"name": "x"}]}}},
        {"name": "few", "guard": {"minItems": 9}, "backend": {"fixed": {"parameters": [{"name": "x"}]}}},
    ]);
    format!("routes: {routes}\n")
}

fn print(folder: &Path, names: &[&str]) {
    let sets: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
    std::fs::write(folder.join("answer"), json!(sets).to_string()).unwrap();
}

/// Makes the route `s` hold an answer that loses `b` and `c`. Returns its id.
async fn hold(app: &TestApp, parameters: Value) -> String {
    app.ask("s", parameters.clone()).await;
    print(app.folder.path(), &["a"]);
    app.clock.advance(Duration::from_mins(10));
    app.ask("s", parameters).await;
    let held = app.operate("/admin/held", None).await.json();
    held["held"][0]["id"].as_str().unwrap().to_owned()
}
