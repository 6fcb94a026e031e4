use std::{
    fs::{self, FileTimes, Permissions},
    os::unix::fs::{PermissionsExt as _, symlink},
};

use super::{
    super::{copy, folder},
    *,
};

/// What a program may do in a copy.
type Change = (&'static str, fn(&Path));

/// A work folder with a copy of 300 files, a link, and empty folders.
struct Made {
    outer: tempfile::TempDir,
    what: Copied,
}

impl Made {
    fn new() -> Self {
        let outer = tempfile::tempdir().unwrap();
        let from = outer.path().join("from");
        for number in 0..300 {
            let folder = from.join(format!("d{}", number % 7));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(number.to_string()), "x").unwrap();
        }
        fs::create_dir(from.join("empty")).unwrap();
        symlink("d0/0", from.join("link")).unwrap();
        let what = Copied { from, max_bytes: 1 << 20, max_files: 1000, inside: PathBuf::new(), is_fixed: true };
        Self { outer, what }
    }

    /// A new copy, and its state.
    fn copy(&self) -> (PathBuf, Option<Unchanged>) {
        let path = self.outer.path().join("work");
        let _ = fs::remove_dir_all(&path);
        folder::make(&path).unwrap();
        let work = Work::new(path.clone()).unwrap();
        let copied = path.join("copy");
        let count = copy::copy(&self.what, &copied).unwrap();
        assert_eq!(count, 300 + 7 + 2);
        let noted = Unchanged::note(&self.what, count, &copied, &work);
        (copied, noted)
    }
}

/// Changes come at once, within the same tick of the clock as the copy.
#[test]
fn every_change_is_noticed() {
    let made = Made::new();
    let (copied, noted) = made.copy();
    let Some(noted) = noted else {
        // The folder for temporary files is on another file system.
        assert!(!state(&copied, &RandomState::new(), usize::MAX).unwrap().is_noting);
        return;
    };
    assert!(noted.holds() && noted.holds());
    assert_eq!(fs::read_to_string(copied.join("d3/3")).unwrap(), "x");
    assert!(noted.holds(), "reading is no change");
    let changes: [Change; 10] = [
        ("content", |copy| fs::write(copy.join("d1/1"), "y").unwrap()),
        ("content and time", |copy| {
            let file = copy.join("d1/8");
            let before = file.metadata().unwrap().modified().unwrap();
            fs::write(&file, "z").unwrap();
            let opened = fs::File::options().write(true).open(file).unwrap();
            opened.set_times(FileTimes::new().set_modified(before)).unwrap();
        }),
        ("mode", |copy| fs::set_permissions(copy.join("d2/2"), Permissions::from_mode(0o755)).unwrap()),
        ("a new file", |copy| fs::write(copy.join("empty/new"), "").unwrap()),
        ("a removed file", |copy| fs::remove_file(copy.join("d4/4")).unwrap()),
        ("a removed folder", |copy| fs::remove_dir(copy.join("empty")).unwrap()),
        ("a renamed file", |copy| fs::rename(copy.join("d5/5"), copy.join("d5/6")).unwrap()),
        ("a second name", |copy| fs::hard_link(copy.join("d6/6"), copy.with_extension("out")).unwrap()),
        ("another link", |copy| {
            fs::remove_file(copy.join("link")).unwrap();
            symlink("d0/0", copy.join("link")).unwrap();
        }),
        ("another folder in its place", |copy| {
            fs::rename(copy, copy.with_extension("old")).unwrap();
            fs::create_dir(copy).unwrap();
        }),
    ];
    for (name, change) in changes {
        let (copied, noted) = made.copy();
        let noted = noted.unwrap();
        change(&copied);
        assert!(!noted.holds(), "{name}");
    }
}

#[test]
fn only_a_fixed_and_large_folder_is_noted() {
    let mut made = Made::new();
    let (copied, noted) = made.copy();
    assert_eq!(noted.is_some(), state(&copied, &RandomState::new(), usize::MAX).unwrap().is_noting);
    let work = Work::new(made.outer.path().join("work")).unwrap();
    assert!(Unchanged::note(&made.what, WORTH - 1, &copied, &work).is_none());
    if let Some(noted) = noted {
        assert!(noted.is_of(&Copied { inside: "d1".into(), ..made.what.clone() }));
        assert!(!noted.is_of(&Copied { from: "/other".into(), ..made.what.clone() }));
    }
    made.what.is_fixed = false;
    assert!(made.copy().1.is_none());
}
