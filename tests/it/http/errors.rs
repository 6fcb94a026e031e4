//! Documents that report an error beside their data.

use serde_json::json;

use super::{ask, json as answers};
use crate::support::upstream::refused;

const INVALID: &str = "backend_output_invalid";

/// As GraphQL reports a partial failure: with 200, beside the data that was found.
#[tokio::test]
async fn a_list_beside_an_error_is_unknown() {
    let items = || json!({"parameters": "body.items"});
    for (error, says) in [
        (r#""error":"database is down""#, "it holds `error` (\"database is down\")"),
        (r#""error":{"code":7,"message":"down"}"#, "it holds `error` (\"down\")"),
        (r#""error":true"#, "it holds `error` (true)"),
        (r#""error":3"#, "it holds `error` (3)"),
        (r#""Error":"down""#, "it holds `Error`"),
        (r#""errors":[{"message":"the shard eu is down"}]"#, "it holds `errors` (\"the shard eu is down\")"),
        (r#""errors":["down","too"]"#, "it holds `errors` (\"down\")"),
        (r#""errors":[{"code":7}]"#, "it holds `errors` ([{\"code\":7}])"),
        (r#""errors":{"eu":"down"}"#, "it holds `errors` ({\"eu\":\"down\"})"),
        (r#""errors":"down""#, "it holds `errors`"),
    ] {
        for list in ["[]", r#"[{"a":"1"}]"#] {
            let reply = ask(answers(&format!("{{\"items\":{list},{error}}}")), items()).await;
            let message = refused(&reply, 502, INVALID, says);
            assert!(message.contains("set `allowErrors: true`"), "{message}");
        }
    }
    // An expression that checks the errors makes no difference.
    let looking = json!({"parameters": "body.errors.all(e, e.contains('eu')) ? body.items : null"});
    refused(&ask(answers(r#"{"items":[],"errors":["eu is down"]}"#), looking).await, 502, INVALID, "it holds `errors`");
}

#[tokio::test]
async fn a_blank_or_allowed_error_is_ignored() {
    for blank in ["null", "false", "0", "\"\"", "[]", "{}"] {
        for key in ["error", "errors"] {
            let reply =
                ask(answers(&format!("{{\"items\":[],\"{key}\":{blank}}}")), json!({"parameters": "body.items"}));
            assert_eq!(reply.await.sets(), "[]", "{key}: {blank}");
        }
    }
    let document = r#"{"items":[{"a":"1"}],"errors":3}"#;
    let allowed = |parameters: &str| json!({"allowErrors": true, "parameters": parameters});
    assert_eq!(ask(answers(document), allowed("body.items")).await.sets(), r#"[{"a":"1"}]"#);
    let by_errors = allowed("body.errors < 3 ? body.items : null");
    refused(&ask(answers(document), by_errors).await, 502, INVALID, "null");
    // An error deeper in the document is ordinary data.
    let deeper = r#"[{"error":"down","a":"1"}]"#;
    assert_eq!(ask(answers(deeper), json!({})).await.sets(), r#"[{"a":"1","error":"down"}]"#);
}
