//! What goes wrong at a step, and what the error then says.

use serde_json::{Value, json};

use crate::tests::cloud::{Replied, credentials_xml, with_json};

/// A fault: its name, what is replied, and what the error says.
pub(super) type Fault = (&'static str, Replied, &'static str);

/// What a cloud says when it refuses at `step`, and what an error must then quote.
fn refusal(step: &str) -> (Replied, &'static str) {
    match step {
        "web identity" | "assume role" | "caller" => {
            // Only the first of them is sent the token.
            let what = if step == "web identity" { "sts:AssumeRole with web-identity-token" } else { "sts:AssumeRole" };
            let body = format!(
                "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>Not authorized to perform {what}</Message>\
                 </Error><RequestId>req-7</RequestId></ErrorResponse>"
            );
            (Replied::With(403, Vec::new(), body), "AccessDenied: Not authorized to perform sts:AssumeRole")
        }
        "ecr" => {
            let body =
                json!({"__type": "com.amazon.coral#AccessDeniedException", "message": "no ecr:GetAuthorizationToken"});
            (with_json(400, &body), "AccessDeniedException: no ecr:GetAuthorizationToken")
        }
        "ecr public" => {
            let body =
                json!({"__type": "AccessDeniedException", "Message": "no sts:GetServiceBearerToken"}).to_string();
            let headers = vec![("x-amzn-requestid", "req-8".to_owned())];
            (Replied::With(400, headers, body), "AccessDeniedException: no sts:GetServiceBearerToken (request req-8)")
        }
        "google impersonation" => {
            let details = json!([{"@type": "type.googleapis.com/google.rpc.RequestInfo", "requestId": "req-9"}]);
            let error = json!({"code": 403, "status": "PERMISSION_DENIED", "message": "iam.serviceAccounts.getAccessToken",
                               "details": details});
            let says = "PERMISSION_DENIED: iam.serviceAccounts.getAccessToken (request req-9)";
            (with_json(403, &json!({"error": error})), says)
        }
        "acr" => {
            let body =
                json!({"errors": [{"code": "UNAUTHORIZED", "message": "not allowed with entra-token"}]}).to_string();
            let headers = vec![("x-ms-correlation-request-id", "req-10".to_owned())];
            (Replied::With(401, headers, body), "UNAUTHORIZED: not allowed with [redacted] (request req-10)")
        }
        _ => {
            let body =
                json!({"error": "invalid_client", "error_description": "AADSTS700016: not found", "trace_id": "t-9"});
            (with_json(400, &body), "invalid_client: AADSTS700016: not found (request t-9)")
        }
    }
}

/// What a cloud says at `step` that gets too many requests, and what an error must then quote.
fn throttled(step: &str) -> (Replied, &'static str) {
    let xml = "<ErrorResponse><Error><Code>Throttling</Code><Message>Rate exceeded</Message></Error></ErrorResponse>";
    match step {
        "web identity" | "assume role" | "caller" => {
            (Replied::With(400, Vec::new(), xml.to_owned()), "Throttling: Rate exceeded")
        }
        "ecr" | "ecr public" => {
            let body = json!({"__type": "ThrottlingException", "message": "Rate exceeded"});
            (with_json(400, &body), "ThrottlingException: Rate exceeded")
        }
        _ => (Replied::With(429, vec![("retry-after", "30".to_owned())], String::new()), "429"),
    }
}

/// A credential of `step` that has ended, and what an error must then say. Sessions and names have no end.
fn expired(step: &str) -> Option<(Replied, &'static str)> {
    let past = "2025-12-31T23:00:00Z";
    // `AWS:ecr-password`
    let data = json!({"authorizationToken": "QVdTOmVjci1wYXNzd29yZA==", "expiresAt": 1_700_000_000});
    let good = |body: &Value| Some((with_json(200, body), "has passed"));
    let token = json!({"access_token": "entra-token", "expires_in": 0, "token_type": "Bearer"}).to_string();
    match step {
        "web identity" | "assume role" => Some((Replied::With(200, Vec::new(), credentials_xml(past)), "has passed")),
        "pod identity" | "instance keys" => {
            good(&json!({"AccessKeyId": "A", "SecretAccessKey": "secret-key-of-aws", "Token": "t", "Expiration": past}))
        }
        "ecr" => good(&json!({"authorizationData": [data]})),
        "ecr public" => good(&json!({"authorizationData": data})),
        "google impersonation" => good(&json!({"accessToken": "google-token", "expireTime": past})),
        "google metadata" | "google sts" | "entra" | "azure metadata" => {
            let flavor = vec![("metadata-flavor", "Google".to_owned())];
            Some((Replied::With(200, flavor, token), "the token has ended"))
        }
        _ => None,
    }
}

/// The faults of `step`.
pub(super) fn faults(step: &str) -> Vec<Fault> {
    let (refused, quoted) = refusal(step);
    let with = |status, body: &str| Replied::With(status, Vec::new(), body.to_owned());
    let late = {
        let Replied::With(status, _, body) = refused.clone() else { unreachable!() };
        Replied::With(status, vec![("date", "Thu, 01 Jan 2026 00:10:00 GMT".to_owned())], body)
    };
    let page = "<!DOCTYPE html><html><body>Sign in<br></body></html>";
    let (throttled, of_limit) = throttled(step);
    let mut faults = vec![
        ("gone", Replied::Closed, ""),
        ("refused", refused, quoted),
        ("failing", with(503, "down"), "503"),
        ("throttled", throttled, of_limit),
        ("silent", Replied::Silence, "in time"),
        ("html", with(200, page), ""),
        ("html that refuses", with(403, page), "403"),
        ("empty", with(200, ""), ""),
        ("huge", with(200, &" ".repeat(2 * 1024 * 1024)), "the answer is larger than 1048576 bytes"),
        ("clock", late, "this machine's clock is 600 s behind the server's"),
    ];
    faults.extend(expired(step).map(|(expired, says)| ("expired", expired, says)));
    faults
}
