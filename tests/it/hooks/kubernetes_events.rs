//! Kubernetes Events on ApplicationSets, at a (fake) API server: those that come again are counted.

use super::{
    refresh_scene::{SERVICE_TOKEN, within},
    *,
};
use crate::support::apiserver::ApiServer;

/// A gateway with a clock that the test moves, an API server, and a source.
struct Shown {
    app: TestApp,
    api: ApiServer,
    _source: Upstream,
    is_failing: Arc<AtomicBool>,
    is_empty: Arc<AtomicBool>,
}

impl Shown {
    async fn start() -> Self {
        let api = ApiServer::start(SERVICE_TOKEN).await;
        api.add("argocd", "a", "gateway");
        let is_failing = Arc::new(AtomicBool::new(false));
        let (fails, is_empty) = (Arc::clone(&is_failing), Arc::new(AtomicBool::new(false)));
        let empty = Arc::clone(&is_empty);
        let source = Upstream::start(move |_| {
            let sets = if empty.load(Ordering::SeqCst) { "[]" } else { r#"[{"name":"app"}]"# };
            let is_failing = fails.load(Ordering::SeqCst);
            vec![Step::Send(if is_failing { response(503, "", "no") } else { json_response(sets) })]
        })
        .await;
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in [("service-token", SERVICE_TOKEN), ("cluster.crt", &api.ca)] {
            std::fs::write(folder.path().join(name), content).unwrap();
        }
        let refresh = json!({"namespaces": ["argocd"], "configMaps": ["gateway"], "api": api.url,
            "token": {"file": "service-token"}, "ca": "cluster.crt"});
        let url = format!("http://{}/", source.address);
        let route =
            json!({"name": "h", "backend": {"http": {"url": url}}, "cache": {"ttl": "1s", "staleIfError": "24h"}});
        let config = format!("{}argocd: {{ refresh: {refresh} }}\nroutes: {}\n", TestApp::auth(), json!([route]));
        let app = TestApp::start_in(folder, &config).await;
        let follower = Arc::clone(&app.app.push);
        tokio::spawn(async move { follower.follow_notices().await });
        Self { app, api, _source: source, is_failing, is_empty }
    }

    async fn ask(&self) {
        let body = json!({"applicationSetName": "a", "input": {}});
        let reply = self.app.call("/h/api/v1/getparams.execute", &body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }

    /// The source fails several times, and is well again. Waits until the events of both have these counts, and returns their names.
    async fn trouble(&self, counts: &[u64]) -> [Vec<String>; 2] {
        let mut names = [Vec::new(), Vec::new()];
        for (at, reason) in ["SourceFailing", "SourceRecovered"].into_iter().enumerate() {
            self.is_failing.store(at == 0, Ordering::SeqCst);
            // A source that failed is left alone for some seconds.
            within(reason, async || {
                self.app.clock.advance(Duration::from_millis(500));
                self.ask().await;
                sleep(Duration::from_millis(40)).await;
                self.events(reason).iter().map(|(_, count)| *count).eq(counts.iter().copied())
            })
            .await;
            names[at] = self.events(reason).into_iter().map(|(name, _)| name).collect();
        }
        names
    }

    /// The name and the count of each event of `reason`.
    fn events(&self, reason: &str) -> Vec<(String, u64)> {
        let events = self.api.events().into_iter().filter(|event| event["reason"] == reason);
        let text = |event: &Value| event["metadata"]["name"].as_str().unwrap().to_owned();
        events.map(|event| (text(&event), event["count"].as_u64().unwrap())).collect()
    }
}

/// A loss that nobody released is accepted once the source has said it often enough. Somebody should see that.
#[tokio::test(flavor = "multi_thread")]
async fn an_acceptance_without_an_operator_is_a_warning() {
    let shown = Shown::start().await;
    shown.ask().await;
    shown.is_empty.store(true, Ordering::SeqCst);
    for _ in 0..4 {
        shown.app.clock.advance(Duration::from_mins(10));
        shown.ask().await;
    }
    within("it is confirmed", async || !shown.events("AnswerConfirmed").is_empty()).await;
    let event = shown.api.events().into_iter().find(|event| event["reason"] == "AnswerConfirmed").unwrap();
    let message = "route h: accepted without an operator, because 3 further runs agreed: an empty list after one of 1; \
                   Argo CD will delete 1: app";
    assert_eq!((&event["type"], &event["message"]), (&json!("Warning"), &json!(message)));
    assert!(shown.events("AnswerReleased").is_empty(), "nobody released it");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_comes_again_is_counted_and_one_that_has_expired_is_written_anew() {
    let shown = Shown::start().await;
    shown.ask().await;
    let first = shown.trouble(&[1]).await;
    let began = shown.api.events()[0].clone();

    shown.app.clock.advance(Duration::from_secs(31));
    assert_eq!(shown.trouble(&[2]).await, first, "the same events");
    let now = shown.api.events()[0].clone();
    assert_eq!(now["firstTimestamp"], began["firstTimestamp"]);
    assert_ne!(now["lastTimestamp"], began["lastTimestamp"]);

    // The API server keeps events for an hour.
    shown.api.expire_events();
    shown.app.clock.advance(Duration::from_secs(31));
    let third = shown.trouble(&[1]).await;
    assert!(first.iter().zip(&third).all(|(first, third)| first != third), "{first:?} {third:?}");

    // After ten minutes it is another event, even if the API server still has the one before.
    shown.app.clock.advance(Duration::from_mins(10));
    let fourth = shown.trouble(&[1, 1]).await;
    assert!(fourth.iter().zip(&third).all(|(fourth, third)| fourth[0] == third[0]), "{third:?} {fourth:?}");
    assert_eq!(shown.app.metric("appset_gateway_kubernetes_events_total{result=\"failed\"}").await, 0);
}

/// An element that is unknown for more than an hour is one event, and another one once it is known again.
#[tokio::test(flavor = "multi_thread")]
async fn an_element_that_stays_unknown_is_a_warning_once() {
    stays_unknown(|_| 1).await;
}

/// New commits are new questions about the same element.
#[tokio::test(flavor = "multi_thread")]
async fn an_element_that_stays_unknown_over_new_commits_is_a_warning_once() {
    stays_unknown(|lists| lists).await;
}

/// `commit_of` is the commit of the failing element in a list, by how often the list was read before.
async fn stays_unknown(commit_of: fn(usize) -> usize) {
    let api = ApiServer::start(SERVICE_TOKEN).await;
    api.add("argocd", "a", "gateway");
    let is_failing = Arc::new(AtomicBool::new(false));
    let (fails, lists) = (Arc::clone(&is_failing), AtomicUsize::new(0));
    let source = Upstream::start(move |request| {
        vec![Step::Send(match &*request.target {
            "/list" => {
                let commit = commit_of(lists.fetch_add(1, Ordering::SeqCst));
                json_response(format!(r#"[{{"number":1}},{{"number":2,"commit":{commit}}},{{"number":3}}]"#))
            }
            "/element/2" if fails.load(Ordering::SeqCst) => response(500, "", "no"),
            _ => json_response(r#"[{"digest":"x"}]"#),
        })]
    })
    .await;
    let url = format!("http://{}", source.address);
    let each = json!({"key": ["number"], "http": {"url": format!("{url}/element/{{{{ item.number }}}}")}});
    let route = json!({"name": "previews", "cache": {"ttl": "1s", "staleWhileRevalidate": "0s", "staleIfError": "24h"},
        "backend": {"pipeline": [{"http": {"url": format!("{url}/list")}}, {"each": each}]},
        "output": {"number": "{{ item.number }}"}});
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in [("service-token", SERVICE_TOKEN), ("cluster.crt", &api.ca)] {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    let refresh = json!({"namespaces": ["argocd"], "configMaps": ["gateway"], "api": api.url,
        "token": {"file": "service-token"}, "ca": "cluster.crt"});
    let config = format!("{}argocd: {{ refresh: {refresh} }}\nroutes: {}\n", TestApp::auth(), json!([route]));
    let app = TestApp::start_in(folder, &config).await;
    let follower = Arc::clone(&app.app.push);
    tokio::spawn(async move { follower.follow_notices().await });
    let ask = async || {
        let reply =
            app.call("/previews/api/v1/getparams.execute", &json!({"applicationSetName": "a", "input": {}})).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        sleep(Duration::from_millis(50)).await;
    };
    let events = |reason: &str| api.events().into_iter().filter(|event| event["reason"] == reason).collect::<Vec<_>>();
    ask().await;
    is_failing.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        app.clock.advance(Duration::from_mins(25));
        ask().await;
    }
    assert_eq!(events("ElementUnknown"), Vec::<Value>::new(), "it has been unknown for fifty minutes");
    for _ in 0..4 {
        app.clock.advance(Duration::from_mins(25));
        ask().await;
    }
    within("the warning", async || !events("ElementUnknown").is_empty()).await;
    let warnings = events("ElementUnknown");
    assert_eq!((warnings.len(), &warnings[0]["type"], &warnings[0]["count"]), (1, &json!("Warning"), &json!(1)));
    let message = warnings[0]["message"].as_str().unwrap();
    let begins = "route previews: element 2 has been unknown for more than an hour: ";
    assert!(message.starts_with(begins) && message.contains("500"), "{message}");
    assert!(events("SourceFailing").is_empty() && events("ElementRecovered").is_empty());

    is_failing.store(false, Ordering::SeqCst);
    app.clock.advance(Duration::from_mins(25));
    ask().await;
    within("it is known again", async || !events("ElementRecovered").is_empty()).await;
    let recovered = &events("ElementRecovered")[0];
    assert_eq!(
        (&recovered["message"], &recovered["type"]),
        (&json!("route previews: element 2 is known again"), &json!("Normal"))
    );
}
