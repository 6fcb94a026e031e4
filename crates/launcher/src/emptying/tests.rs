use std::{
    ffi::OsStr,
    fs::{self, Permissions},
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
    },
    path::PathBuf,
    time::Duration,
};

use rustix::fs::mkdirat;

use super::*;

/// A folder in memory if there is one: some disks need milliseconds to remove a folder. It is removed without recursion, which
/// a failing test would otherwise end with.
struct Outer(PathBuf);

impl Outer {
    fn new() -> Self {
        Self(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap().keep())
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Outer {
    fn drop(&mut self) {
        let _ = std::process::Command::new("rm").arg("-rf").arg(&self.0).status();
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_mins(2)
}

/// Makes `count` folders in each other, deeper than any path can name.
fn nest(folder: &Path, name: &CStr, count: usize) {
    let mut inner = openat(CWD, folder, FOLDER, Mode::empty()).unwrap();
    for _ in 0..count {
        mkdirat(&inner, name, OWNERS).unwrap();
        inner = openat(&inner, name, FOLDER, Mode::empty()).unwrap();
    }
    openat(&inner, c"file", OFlags::CREATE | OFlags::WRONLY, OWNERS).unwrap();
}

fn is_empty(folder: &Path) -> bool {
    folder.read_dir().unwrap().next().is_none()
}

#[test]
fn folders_in_each_other_are_removed_whatever_their_number() {
    let outer = Outer::new();
    for name in [c"a", c"\xff\xfe \n", c"a name of a usual length, or somewhat more than that, for paths that grow"] {
        nest(outer.path(), name, 25_000);
    }
    // A thread with little stack, as a recursion would show.
    let folder = outer.path().to_owned();
    std::thread::Builder::new()
        .stack_size(64 * 1024)
        .spawn(move || empty(&folder, soon()))
        .unwrap()
        .join()
        .unwrap()
        .unwrap();
    assert!(is_empty(outer.path()));
}

#[test]
fn wide_and_deep_trees_are_removed() {
    let outer = Outer::new();
    for branch in 0..300 {
        let folder = outer.path().join(branch.to_string());
        fs::create_dir(&folder).unwrap();
        nest(&folder, c"a", 3 * MAX_OPEN);
        (0..20).for_each(|file| fs::write(folder.join(file.to_string()), "x").unwrap());
    }
    (0..20_000).for_each(|file| fs::write(outer.path().join(format!("file-{file}")), "").unwrap());
    empty(outer.path(), soon()).unwrap();
    assert!(is_empty(outer.path()));
}

#[test]
fn folders_without_access_are_removed_and_links_are_not_followed() {
    let outer = Outer::new();
    let (folder, other) = (outer.path().join("work"), outer.path().join("other"));
    fs::create_dir_all(folder.join("a/b/c")).unwrap();
    fs::create_dir(&other).unwrap();
    fs::write(other.join("stays"), "").unwrap();
    fs::write(folder.join("a/b").join(OsStr::from_bytes(b"\xff\n")), "x").unwrap();
    nix::unistd::mkfifo(&folder.join("a/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    symlink(&other, folder.join("a/link")).unwrap();
    symlink(outer.path(), folder.join("way out")).unwrap();
    symlink("/", folder.join("a/b/root")).unwrap();
    for (denied, mode) in [("a/b/c", 0), ("a/b", 0o100), ("a", 0o444), (".", 0)] {
        fs::set_permissions(folder.join(denied), Permissions::from_mode(mode)).unwrap();
    }
    empty(&folder, soon()).unwrap();
    assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o7777, 0o700);
    assert!(is_empty(&folder) && other.join("stays").exists());
    symlink(&other, outer.path().join("link")).unwrap();
    assert!(empty(&outer.path().join("link"), soon()).is_err(), "a link is not a folder");
    assert!(other.join("stays").exists());
}

#[test]
fn it_ends_in_time() {
    let outer = Outer::new();
    nest(outer.path(), c"a", 10);
    let error = empty(outer.path(), Instant::now()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    empty(outer.path(), soon()).unwrap();
}

#[test]
fn another_file_system_is_not_entered() {
    let outer = Outer::new();
    let (inside, other) = (outer.path().join("work/mounted"), outer.path().join("other"));
    fs::create_dir_all(&inside).unwrap();
    fs::create_dir(&other).unwrap();
    fs::write(other.join("stays"), "").unwrap();
    let mount = |arguments: &[&OsStr]| {
        std::process::Command::new("mount").args(arguments).status().is_ok_and(|status| status.success())
    };
    // A part of the same file system, mounted again. Only root may do that.
    if !mount(&["--bind".as_ref(), other.as_os_str(), inside.as_os_str()]) {
        return;
    }
    let emptied = empty(&outer.path().join("work"), soon());
    let unmounted = std::process::Command::new("umount").arg(&inside).status().unwrap();
    assert!(emptied.is_err() && other.join("stays").exists() && unmounted.success());
}
