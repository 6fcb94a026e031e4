//! `appset-gateway demo`: what each scene must show, and what it leaves behind.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::TcpListener,
    process::{Command, Output, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::support::binary::command;

/// So fast that no pause is left.
const AT_ONCE: [&str; 3] = ["demo", "--speed", "1000000"];

fn demo(arguments: &[&str]) -> Output {
    command().args(AT_ONCE).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn document(arguments: &[&str]) -> Value {
    let output = demo(&[&["-o", "json"], arguments].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The numbers of a side: deleted Applications, those deleted by mistake, and errors.
fn numbers(side: &Value) -> (usize, u64, u64) {
    let number = |key: &str| side[key].as_u64().unwrap();
    (side["deleted"].as_array().unwrap().len(), number("deletedWrongly"), number("errors"))
}

#[test]
fn each_scene_shows_what_it_is_for() {
    let document = document(&[]);
    // The scene; what goes without a gateway; what goes with a plugin that passes errors on; what goes here.
    let expected = [
        ("good-day", (0, 0, 0), (0, 0, 0), (0, 0, 0)),
        ("source-down", (23, 23, 0), (0, 0, 4), (0, 0, 0)),
        ("registry-down", (4, 4, 0), (0, 0, 4), (0, 0, 0)),
        ("empty-list", (23, 23, 0), (23, 23, 0), (0, 0, 0)),
        ("half-a-list", (6, 6, 0), (6, 6, 0), (0, 0, 0)),
        ("unfinished-build", (1, 1, 0), (0, 0, 4), (0, 0, 0)),
        ("true-removal", (1, 0, 0), (1, 0, 0), (1, 0, 0)),
    ];
    let scenes = document["scenes"].as_array().unwrap();
    let sides = ["withoutGateway", "errorsPassedOn", "gateway"];
    let actual: Vec<_> = scenes
        .iter()
        .map(|scene| {
            let [without, passed_on, gateway] = sides.map(|side| numbers(&scene[side]));
            (scene["scene"].as_str().unwrap(), without, passed_on, gateway)
        })
        .collect();
    assert_eq!(actual, expected);
    assert_eq!(scenes[0]["gateway"]["created"], 39);
    assert_eq!(document["total"]["gateway"]["deletedWrongly"], 0);
    assert_eq!(document["total"]["withoutGateway"]["deletedWrongly"], 57);
    assert_eq!(document["isWhole"], true);
}

/// The reasons are those that the gateway itself gives.
#[test]
fn each_bad_day_has_the_gateways_reason() {
    let document = document(&[]);
    for (scene, part) in [
        ("source-down", "503 Service Unavailable"),
        ("registry-down", "4 of 4 elements unknown"),
        ("empty-list", "held: an empty list after one of 23"),
        ("half-a-list", "held: 6 of 12 parameter sets would be gone"),
        ("unfinished-build", "the last one that CI has built"),
        ("true-removal", "held: 1 of 12 parameter sets would be gone"),
    ] {
        let scenes = document["scenes"].as_array().unwrap();
        let found = scenes.iter().find(|found| found["scene"] == scene).unwrap();
        let reason = found["gateway"]["because"][0].as_str().unwrap_or_default();
        assert!(reason.contains(part), "{scene}: {found:#}");
    }
}

#[test]
fn a_scene_alone_ends_as_it_does_in_the_story() {
    for (scene, without, here) in [("true-removal", 1, 1), ("registry-down", 4, 0)] {
        let document = document(&["--scene", scene]);
        let scenes = document["scenes"].as_array().unwrap();
        assert_eq!(scenes.len(), 1);
        let actual = ["withoutGateway", "gateway"].map(|side| numbers(&scenes[0][side]).0);
        assert_eq!(actual, [without, here], "{scene}");
        assert!(!scenes[0]["gateway"]["because"].as_array().unwrap().is_empty(), "{scene}");
    }
}

#[test]
fn the_minutes_of_each_scene_ascend() {
    let plain = text(&demo(&["--plain"]).stdout);
    let scenes: Vec<Vec<u64>> = plain
        .split("\n\n")
        .map(|scene| {
            let times = scene.lines().filter_map(|line| line.trim_start().split_once(" min  "));
            times.map(|(minutes, _)| minutes.parse().unwrap()).collect()
        })
        .filter(|minutes: &Vec<u64>| !minutes.is_empty())
        .collect();
    assert_eq!(scenes.len(), 7, "{plain}");
    assert!(scenes.iter().all(|minutes| minutes.is_sorted()), "{plain}");
}

#[test]
fn an_unknown_scene_or_speed_is_refused() {
    let output = demo(&["--scene", "half-a-lits"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(error.contains("half-a-list") && error.contains("[possible values: good-day, source-down"), "{error}");
    for speed in ["0", "-1", "inf", "fast"] {
        let output = command().args(["demo", &format!("--speed={speed}")]).output().unwrap();
        assert!(text(&output.stderr).contains("write a number from 0.01 on"), "{speed}");
    }
}

/// The output on a terminal.
fn on_terminal(arguments: &[&str]) -> String {
    let program = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";
    let mut command = Command::new("python3");
    command.args(["-c", program, env!("CARGO_BIN_EXE_appset-gateway")]).args(AT_ONCE).args(arguments);
    let output = command.env("TERM", "xterm").env_remove("NO_COLOR").stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn only_a_terminal_gets_colours_and_progress() {
    let scene = ["--scene", "half-a-list"];
    let coloured = on_terminal(&scene);
    assert!(coloured.contains("\u{1b}[32m") && coloured.contains("scene 1 of 1"), "{coloured}");
    let plain = on_terminal(&[&["--plain"], &scene[..]].concat());
    assert!(!plain.contains('\u{1b}') && !plain.contains("scene 1 of 1"), "{plain}");
    let printed = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    let conclusion = "Without the gateway Argo CD would have deleted 6 Applications; here: 0, because held: 6 of 12";
    assert!(printed.contains(conclusion), "{plain}");
    assert!(!text(&demo(&scene).stdout).contains('\u{1b}'));
}

#[test]
fn nothing_is_left_behind() {
    let [temporary, home] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut command = command();
    command.args(AT_ONCE).current_dir(home.path()).env("TMPDIR", temporary.path()).env("HOME", home.path());
    assert!(command.output().unwrap().status.success());
    for folder in [temporary, home] {
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn a_taken_port_is_no_obstacle() {
    // The demo of another test may have it, and end before the one below starts. A process that does not end keeps it for both.
    let _taken = (0..200).find_map(|_| {
        let listener = TcpListener::bind("127.0.0.1:4356").ok();
        if listener.is_none() {
            std::thread::sleep(Duration::from_millis(100));
        }
        listener
    });
    let output = demo(&["--scene", "half-a-list"]);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}{}", text(&output.stderr));
    assert!(printed.contains("4356 is taken") && !printed.contains("http://127.0.0.1:4356\n"), "{printed}");
}

#[test]
fn an_interrupt_ends_it_cleanly() {
    let mut child = command().args(["demo", "--speed", "0.01"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("(good-day)") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "it ended by itself");
    }
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("Interrupted after 0 of 7 scenes."), "{rest}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
