//! The one endpoint: what it takes, what it answers, what it refuses.

use serde_json::json;

use crate::support::{TestApp, Verdict};

const FIXED: &str = "  - { name: fixed, match: { applicationSet: fake-appset }, backend: { fixed: { parameters: [ { key1: val1, n: 1000000 } ] } } }";

#[tokio::test]
async fn the_documentations_call_is_answered() {
    let app = TestApp::with_routes(FIXED).await;
    let body = json!({"applicationSetName": "fake-appset", "input": {"parameters": {"param1": "value1"}}});
    let reply = app.call("/api/v1/getparams.execute", &body).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.text(), r#"{"output":{"parameters":[{"key1":"val1","n":"1000000"}]}}"#);
    assert!(matches!(reply.verdict(), Verdict::Parameters(sets) if sets.len() == 1));
}
