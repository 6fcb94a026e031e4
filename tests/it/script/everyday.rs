//! Common programs work as scripts under the system call filter.

use std::{
    io::{Read, Write},
    net::TcpListener,
    process::Command,
};

use serde_json::{Value, json};

use super::attempts::{Served, next};

const PYTHON: &str = r#"
import asyncio, os, resource, signal, socket, subprocess, sys, threading
subprocess.run(["true"], check=True)
subprocess.run("exit 0", shell=True, check=True, start_new_session=True)
threads = [threading.Thread(target=lambda: None) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
async def run():
    child = await asyncio.create_subprocess_exec("sleep", "60")
    child.kill()
    assert await child.wait() == -signal.SIGKILL
    await asyncio.to_thread(lambda: None)
asyncio.run(run())
os.nice(1)
os.sched_setaffinity(0, os.sched_getaffinity(0))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
socket.socketpair()
if os.fork() == 0:
    os._exit(0)
os.wait()
print("[]")
"#;

const NODE: &str = "
const { execSync, spawn } = require('child_process');
const { Worker } = require('worker_threads');
const fs = require('fs');
execSync('true');
fs.writeFileSync(process.env.HOME + '/file', fs.readFileSync('/etc/hosts'));
new Worker('0', { eval: true }).on('exit', () => {
  const child = spawn('sleep', ['60']);
  child.on('exit', (code, signal) => { if (signal === 'SIGKILL') console.log('[]'); });
  child.kill('SIGKILL');
});
";

const SHELL: &str = "set -eu
nice -n 5 true; timeout 5 true; setsid -w true; nohup true > /dev/null 2>&1
taskset -c 0 true; ionice -c 3 true; prlimit --nofile=100 true
seq 20 | xargs -P 4 -n 1 true
sleep 60 & kill $!; wait $! || true
mkdir $TMPDIR/d; touch $TMPDIR/d/f; chmod 600 $TMPDIR/d/f; cp -a $TMPDIR/d $TMPDIR/e; tar -cf - -C $TMPDIR d | tar -tf - > /dev/null
echo '[]'";

const GIT: &str =
    "set -eu; export GIT_CONFIG_NOSYSTEM=1; cd $HOME; git init -q one; cd one; echo x > file; git add file
git -c user.name=a -c user.email=a@b commit -q -m first; git clone -q . ../two; git -C ../two gc -q
test $(git -C ../two log --oneline | wc -l) = 1; echo '[]'";

#[tokio::test]
async fn common_programs_work() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", upstream.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in upstream.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n[]");
        }
    });
    let scripts: Vec<(&str, Value)> = [
        ("python3", json!(["python3", "-c", PYTHON])),
        ("sh", json!(["sh", "-c", SHELL])),
        ("bash", json!(["bash", "-c", "coproc cat; echo '[]' >&${COPROC[1]}; read -ru ${COPROC[0]} all; echo $all"])),
        ("jq", json!(["jq", "-nc", "[]"])),
        ("git", json!(["sh", "-c", GIT])),
        ("curl", json!(["curl", "-fsS", url])),
        ("node", json!(["node", "-e", NODE])),
        ("perl", json!(["perl", "-e", "system('true') == 0 or die; print `echo '[]'`"])),
    ]
    .into_iter()
    .filter(|(name, _)| *name == "sh" || Command::new(name).arg("--version").output().is_ok())
    .map(|(name, command)| (name, json!({"command": command, "timeout": "20s"})))
    .collect();
    assert!(scripts.len() >= 4, "{scripts:?}");
    let all: Vec<(&str, Value)> = scripts.iter().cloned().chain([next()]).collect();
    let served = Served::new(&all, None);
    for (name, _) in scripts {
        let reply = served.ask(name).await;
        assert_eq!(reply.status, 200, "{name}: {}", reply.text());
        assert_eq!(reply.sets(), "[]", "{name}");
    }
}
