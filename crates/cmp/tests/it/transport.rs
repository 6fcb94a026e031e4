//! grpc-go's authority, with the control: hyper alone refuses it.

use std::{
    convert::Infallible,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use http_body_util::Full;
use hyper::{Response, body::Bytes, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncRead, AsyncWrite, copy_bidirectional},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    task::spawn_blocking,
};

use crate::support::{Answer, DEMO, Gateway, answers, client, script};

/// What Argo CD gets at the socket `path`.
async fn ask(path: PathBuf, flags: &'static [&'static str]) -> Answer {
    let ask = move || {
        let mut command = Command::new(client());
        command.arg(path).arg("CheckPluginConfiguration").args(flags).stdout(Stdio::piped());
        answers(command.spawn().unwrap()).remove(0)
    };
    spawn_blocking(ask).await.unwrap()
}

#[test]
fn argo_cd_reaches_a_plugin() {
    let gateway = Gateway::sidecar(DEMO);
    let answer = gateway.ask("CheckPluginConfiguration", ".", &[]);
    assert_eq!(answer.fields("1").len(), 1, "{answer:?}");
    assert!(answer.fields("2").is_empty());
    assert_eq!(gateway.ask("Health", ".", &[]).fields("1").len(), 1);
    assert_eq!(gateway.ask("Nothing", ".", &[]).code(), "Unimplemented");
}

/// As grpc-go's health server: only the server as a whole has a state.
#[test]
fn the_health_of_a_service_is_unknown() {
    let gateway = Gateway::sidecar(DEMO);
    let answer = gateway.ask("Health", ".", &["-service", "plugin.ConfigManagementPluginService"]);
    assert_eq!((answer.code(), answer.error()), ("NotFound", "unknown service"));
    // The first message, and then nothing until the client gives up.
    for (service, state) in [("", 1), ("nothing", 3)] {
        let watched = gateway.ask_all("Watch", ".", &["-service", service, "-timeout", "2s"]);
        assert_eq!(watched.len(), 2, "{watched:?}");
        assert_eq!(watched[0].fields("1"), [state], "{watched:?}");
        assert_eq!(watched[1].code(), "DeadlineExceeded", "{watched:?}");
    }
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
            "List": {"statuses": {"": {"status": "SERVING"}}},
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
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = service_fn(|_| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
        }
    });
    let answer = ask(path, &[]).await;
    assert!(answer.error().contains("PROTOCOL_ERROR"), "{answer:?}");
}

/// Accepts at `path`, and passes bytes on to what `connect` reaches.
fn pipe<S, F>(path: &Path, connect: impl Fn() -> F + Send + 'static)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = std::io::Result<S>> + Send,
{
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut target = connect().await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut stream, &mut target).await });
        }
    });
}

/// Argo CD connects without a deadline, and holds the repository's lock meanwhile. So a pipe of bytes, which accepts before anybody answers, stops
/// that repository as long as its target is away. A server answers by itself, whatever its plugin does.
#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_of_bytes_hangs_argo_cd() {
    let gateway = Gateway::sidecar(&script("sleep 1000"));
    gateway.file("x", "");
    let folder = tempfile::tempdir().unwrap();
    let [present, away] = ["present.sock", "away.sock"].map(|name| folder.path().join(name));
    let socket = gateway.socket("demo-v1.0");
    pipe(&present, move || UnixStream::connect(socket.clone()));
    assert_eq!(ask(present, &[]).await.code(), "OK", "the pipe passes bytes on");
    // The kernel accepts for it, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    pipe(&away, move || TcpStream::connect(address));
    let hanging = ask(away, &["-ready", "3s", "-timeout", "1s"]).await;
    assert!(hanging.error().contains("not ready in 3s"), "{hanging:?}");
    let stuck = spawn_blocking(move || gateway.ask("GenerateManifest", ".", &["-ready", "3s", "-timeout", "2s"]));
    let stuck = stuck.await.unwrap();
    assert!(stuck.error().contains("deadline"), "{stuck:?}");
}
