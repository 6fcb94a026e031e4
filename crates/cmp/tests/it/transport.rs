//! grpc-go's authority, with the control: hyper alone refuses it.

use std::convert::Infallible;

use http_body_util::Full;
use hyper::{Response, body::Bytes, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::support::{Answer, DEMO, Gateway, answers, client};

#[test]
fn argo_cd_reaches_a_plugin() {
    let gateway = Gateway::sidecar(DEMO);
    let answer = gateway.ask("CheckPluginConfiguration", ".", &[]);
    assert_eq!(answer.fields("1").len(), 1, "{answer:?}");
    assert!(answer.fields("2").is_empty());
    assert_eq!(gateway.ask("Health", ".", &[]).fields("1").len(), 1);
    assert_eq!(gateway.ask("Nothing", ".", &[]).code(), "Unimplemented");
}

/// `tests/client/reflect.go` checks the descriptors themselves, with Go's library and with those that grpc-go has.
#[test]
fn services_describe_themselves() {
    let gateway = Gateway::sidecar(DEMO);
    for version in ["v1", "v1alpha"] {
        let Answer(found) = gateway.ask(&format!("Reflect/{version}"), ".", &[]);
        let services = [
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection",
            "plugin.ConfigManagementPluginService",
        ];
        assert_eq!(found["services"], serde_json::json!(services), "{found}");
        let expected = serde_json::json!({
            "Check": {"status": "SERVING"},
            "CheckPluginConfiguration": {"isDiscoveryConfigured": true, "provideGitCreds": false},
        });
        assert_eq!(found["calls"], expected, "{found}");
        let plugin = "cmpserver/plugin/plugin.proto";
        for (symbol, file, code) in [
            ("plugin.File.chunk", plugin, 0),
            ("plugin.ConfigManagementPluginService.MatchRepository", plugin, 0),
            ("repository.ParameterAnnouncement.MapEntry", "reposerver/repository/repository.proto", 0),
            ("grpc.health.v1.HealthCheckResponse.ServingStatus", "grpc/health/v1/health.proto", 0),
            ("nothing", "", 5),
            ("plugin.File.nothing", "", 5),
            ("plugin.ConfigManagementPluginService.Nothing", "", 5),
        ] {
            assert_eq!(found[symbol], serde_json::json!([file, code]), "{symbol}");
        }
        for (question, code) in [("extensions", 0), ("extension", 5), ("no file", 5), ("empty", 3)] {
            assert_eq!(found[question], code, "{question}");
        }
    }
    assert_eq!(gateway.ask("Reflect/v2", ".", &[]).code(), "Unimplemented");
}

/// Without the filter, hyper resets the stream, and no handler is called. If this test fails, the filter has become needless.
#[tokio::test(flavor = "multi_thread")]
async fn hyper_alone_refuses_argo_cd() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("demo-v1.0.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = service_fn(|_| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
        }
    });
    let asked = tokio::task::spawn_blocking(move || {
        let mut command = std::process::Command::new(client());
        answers(command.arg(path).arg("CheckPluginConfiguration").stdout(std::process::Stdio::piped()).spawn().unwrap())
    });
    let answer: Answer = asked.await.unwrap().remove(0);
    assert!(answer.error().contains("PROTOCOL_ERROR"), "{answer:?}");
}
