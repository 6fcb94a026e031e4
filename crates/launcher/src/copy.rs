//! Copies a folder, for programs that change the folder they work in.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink},
    path::{Component, Path, PathBuf},
};

use nix::sys::resource::{Resource, getrlimit};

use super::wire::Copied;

/// The most files and folders in a copy.
const MAX_ENTRIES: usize = 20_000;

/// Copies a folder to the new folder `to`.
///
/// # Errors
/// When the folder is too large, cannot be read, or has a link that leads out of it.
pub(crate) fn copy(what: &Copied, to: &Path) -> Result<(), String> {
    let from = what.from.canonicalize().map_err(|error| format!("{}: {error}", what.from.display()))?;
    let (_, largest) = getrlimit(Resource::RLIMIT_FSIZE).map_err(|error| error.to_string())?;
    let mut run = Run { from, to: to.to_owned(), room: what.max_bytes, max: what.max_bytes, largest, count: 0 };
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let shown = run.from.join(&folder);
        let failed = |error: io::Error| format!("cannot copy {}: {error}", shown.display());
        DirBuilder::new().mode(0o700).create(run.to.join(&folder)).map_err(failed)?;
        for entry in run.from.join(&folder).read_dir().map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().map_err(failed)?;
            let path = folder.join(entry.file_name());
            run.count += 1;
            if run.count > MAX_ENTRIES {
                return Err(format!("{} holds more than {MAX_ENTRIES} files, too many to copy", run.from.display()));
            }
            if kind.is_dir() {
                folders.push(path);
            } else {
                run.one(&path, kind.is_symlink())
                    .map_err(|why| format!("cannot copy {}: {why}", run.from.join(&path).display()))?;
            }
        }
    }
    Ok(())
}

struct Run {
    from: PathBuf,
    to: PathBuf,
    /// The bytes that may still be copied.
    room: u64,
    max: u64,
    /// The largest file that may be written, in bytes.
    largest: u64,
    count: usize,
}

impl Run {
    /// Copies a file, or a link as a link.
    fn one(&mut self, path: &Path, is_link: bool) -> Result<(), String> {
        let failed = |error: io::Error| error.to_string();
        let (from, to) = (self.from.join(path), self.to.join(path));
        if is_link {
            let target = from.read_link().map_err(failed)?;
            if leads_out(path, &target) {
                return Err(format!("it leads out of the folder, to {}", target.display()));
            }
            return symlink(target, to).map_err(failed);
        }
        // Neither a link that replaced the file meanwhile, nor a pipe that waits for a writer.
        let flags = nix::fcntl::OFlag::O_NOFOLLOW | nix::fcntl::OFlag::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(&from).map_err(failed)?;
        let data = file.metadata().map_err(failed)?;
        if !data.is_file() {
            return Err("it is neither a file nor a folder".to_owned());
        }
        if data.len() > self.largest {
            return Err(format!("it is larger than `limits.fileSize` ({} bytes)", self.largest));
        }
        let mut new = File::create_new(&to).map_err(failed)?;
        let copied = io::copy(&mut file.take((self.room + 1).min(self.largest)), &mut new).map_err(failed)?;
        self.room = self
            .room
            .checked_sub(copied)
            .ok_or_else(|| format!("the folder holds more than {} bytes (`maxSize`)", self.max))?;
        let mode = std::fs::Permissions::from_mode(data.mode() & 0o777 | 0o600);
        new.set_permissions(mode).map_err(failed)
    }
}

/// Whether the link at `path`, relative to the folder, leads out of it by its mere text. Landlock decides what programs
/// can reach outside.
fn leads_out(path: &Path, target: &Path) -> bool {
    let mut depth = path.components().count() - 1;
    for component in target.components() {
        match component {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return true,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_out_of_the_folder_are_found() {
        for (path, target, is_out) in [
            ("a", "b", false),
            ("a", "./b/../c", false),
            ("a", "../b", true),
            ("d/a", "../b", false),
            ("d/a", "../../b", true),
            ("d/a", "/etc/passwd", true),
            ("a", "..data/a", false),
        ] {
            assert_eq!(leads_out(Path::new(path), Path::new(target)), is_out, "{path} -> {target}");
        }
    }

    #[test]
    fn a_folder_is_copied_whole_or_not_at_all() {
        let from = tempfile::tempdir().unwrap();
        let to = tempfile::tempdir().unwrap();
        std::fs::create_dir(from.path().join("d")).unwrap();
        std::fs::write(from.path().join("d/run"), "12345").unwrap();
        std::fs::set_permissions(from.path().join("d/run"), std::fs::Permissions::from_mode(0o555)).unwrap();
        symlink("d/run", from.path().join("link")).unwrap();
        let attempt = |bytes: u64, name: &str| {
            let to = to.path().join(name);
            copy(&Copied { from: from.path().to_owned(), max_bytes: bytes }, &to).map(|()| to)
        };
        let copied = attempt(5, "whole").unwrap();
        assert_eq!(std::fs::read_to_string(copied.join("link")).unwrap(), "12345");
        assert!(copied.join("link").is_symlink());
        assert_eq!(copied.join("d/run").metadata().unwrap().mode() & 0o777, 0o755);
        assert!(attempt(4, "large").unwrap_err().contains("more than 4 bytes (`maxSize`)"));
        symlink("/etc/passwd", from.path().join("d/out")).unwrap();
        assert!(attempt(5, "out").unwrap_err().contains("d/out: it leads out of the folder, to /etc/passwd"));
    }
}
