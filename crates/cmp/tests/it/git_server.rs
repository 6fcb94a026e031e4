//! A repository that git reads by HTTP with a password: `git http-backend` behind a small server, as CGI.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use tempfile::TempDir;

/// The one who may read, and the password.
pub(crate) const USER: &str = "x-access-token";
pub(crate) const PASSWORD: &str = "correct-horse-battery-staple";
/// `USER:PASSWORD` as HTTP has it.
const BASIC: &str = "Basic eC1hY2Nlc3MtdG9rZW46Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5LXN0YXBsZQ==";

/// A repository with the file `x`.
pub(crate) struct GitServer {
    _folder: TempDir,
    /// Its URL.
    pub(crate) url: String,
}

impl GitServer {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join("work");
        std::fs::create_dir(&work).unwrap();
        std::fs::write(work.join("x"), "a: private\n").unwrap();
        git(&work, &["init", "-q", "-b", "main"]);
        git(&work, &["add", "x"]);
        git(&work, &["-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "x"]);
        git(folder.path(), &["clone", "-q", "--bare", "work", "repository.git"]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/repository.git", listener.local_addr().unwrap());
        let root = folder.path().to_owned();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let root = root.clone();
                thread::spawn(move || serve(stream, root));
            }
        });
        Self { _folder: folder, url }
    }
}

fn git(folder: &Path, arguments: &[&str]) {
    let status = Command::new("git").current_dir(folder).args(arguments).status().expect("git is needed: install it");
    assert!(status.success(), "{arguments:?}");
}

/// One request.
fn serve(mut stream: TcpStream, root: PathBuf) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
            break;
        }
        lines.push(line.trim_end().to_owned());
    }
    let field = |name: &str| {
        let found =
            lines.iter().filter_map(|line| line.split_once(": ")).find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value).to_owned()
    };
    if field("authorization") != BASIC {
        let refused = "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Basic realm=\"git\"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        return drop(stream.write_all(refused.as_bytes()));
    }
    let mut words = lines[0].split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut body = vec![0; field("content-length").parse().unwrap_or(0)];
    reader.read_exact(&mut body).unwrap();
    let mut backend = Command::new("git")
        .arg("http-backend")
        .envs([("GIT_HTTP_EXPORT_ALL", "1"), ("REQUEST_METHOD", method), ("PATH_INFO", path), ("QUERY_STRING", query)])
        .env("GIT_PROJECT_ROOT", root)
        .env("CONTENT_TYPE", field("content-type"))
        .env("HTTP_CONTENT_ENCODING", field("content-encoding"))
        .env("GIT_PROTOCOL", field("git-protocol"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    backend.stdin.take().unwrap().write_all(&body).unwrap();
    let answer = backend.wait_with_output().unwrap().stdout;
    // A CGI program leaves the first line to the server.
    let _ = stream.write_all(&[b"HTTP/1.1 200 OK\r\nconnection: close\r\n", answer.as_slice()].concat());
}
