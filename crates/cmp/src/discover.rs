//! Whether a plugin is for a folder, decided by the names in the archive alone.

use domain::glob::{self, GlobError, NameGlob};

use crate::{
    archive::index::{Entries, Entry},
    archive::links::{self, Resolved},
    grpc::status::Status,
    plugin::Discover,
};

/// The Application's folder in an archive.
///
/// # Errors
/// When the path leads out of the archive, or nothing is there.
pub(crate) fn app_folder(entries: &Entries, app_path: &str) -> Result<Vec<u8>, Status> {
    match links::resolve(entries, b"", app_path.as_bytes()) {
        Resolved::Inside(path) if path.is_empty() || entries.get(&path) == Some(&Entry::Folder) => Ok(path),
        Resolved::Inside(_) | Resolved::Loop => {
            Err(Status::unknown(format!("the Application's path `{app_path}` is not a folder of the repository")))
        }
        Resolved::Outside => Err(Status::unknown(format!("illegal appPath: `{app_path}` leads out of the repository"))),
    }
}

/// Whether a file's name decides for `discover`. `None` if a command does, or nothing.
///
/// # Errors
/// When the pattern is invalid.
pub(crate) fn by_names(discover: &Discover, entries: &Entries, app_folder: &[u8]) -> Option<Result<bool, GlobError>> {
    let (pattern, has_stars) = match discover {
        Discover::FileName(pattern) => (single_stars(pattern), false),
        Discover::Glob(pattern) => (pattern.clone(), true),
        Discover::ByName | Discover::Command(_) => return None,
    };
    Some(matches(&pattern, has_stars, entries, app_folder))
}

fn matches(pattern: &str, has_stars: bool, entries: &Entries, app_folder: &[u8]) -> Result<bool, GlobError> {
    // As Go's `filepath.Join`: `./x` and `a/../x` are `x`, and `../x` is in the folder above.
    let app_folder = String::from_utf8_lossy(app_folder);
    let mut parts: Vec<String> = app_folder.split('/').filter(|part| !part.is_empty()).map(glob::escaped).collect();
    for part in pattern.split('/') {
        match part {
            // Above the repository, nothing is Argo CD's.
            ".." if parts.pop().is_none() => return Ok(false),
            "" | "." | ".." => {}
            part => parts.push(if has_stars { part.to_owned() } else { without_braces(part) }),
        }
    }
    if parts.is_empty() {
        return Ok(true);
    }
    let pattern = parts.join("/");
    // Most names have no wildcard.
    if !pattern.contains(['*', '?', '[', '{', '\\']) {
        let (folder, name) = pattern.rsplit_once('/').unwrap_or(("", &pattern));
        // Folders may be links, as in Go's `Glob`.
        let Resolved::Inside(mut path) = links::resolve(entries, b"", folder.as_bytes()) else { return Ok(false) };
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend(name.as_bytes());
        return Ok(entries.contains_key(&path));
    }
    let glob = NameGlob::parse_path(&pattern)?;
    Ok(entries.keys().any(|path| glob.matches_bytes(path)))
}

/// In Go's patterns `**` is `*`.
fn single_stars(pattern: &str) -> String {
    let mut single = String::with_capacity(pattern.len());
    for character in pattern.chars() {
        if character != '*' || !single.ends_with('*') {
            single.push(character);
        }
    }
    single
}

/// In Go's patterns braces are characters like others.
fn without_braces(pattern: &str) -> String {
    pattern.replace('{', "[{]").replace('}', "[}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(paths: &[&str]) -> Entries {
        let mut entries = Entries::new();
        for path in paths {
            for (at, _) in path.match_indices('/') {
                entries.insert(path[..at].into(), Entry::Folder);
            }
            let file = Entry::File { is_executable: false, content: [0; 32] };
            entries.insert((*path).into(), file);
        }
        entries
    }

    #[test]
    fn names_decide_as_in_go() {
        let entries = entries(&["a/Kptfile", "a/b/c/x.yaml", "top.yaml", "a/{x}", "z[1]/f"]);
        for (discover, folder, expected) in [
            (Discover::FileName("Kptfile".into()), "a", true),
            (Discover::FileName("./Kptfile".into()), "a", true),
            (Discover::FileName("Kptfile".into()), "", false),
            (Discover::FileName("Kpt*".into()), "a", true),
            (Discover::FileName("*file".into()), "a/b", false),
            (Discover::FileName("../Kptfile".into()), "a/b", true),
            (Discover::FileName("../../../Kptfile".into()), "a", false),
            (Discover::FileName("**/x.yaml".into()), "a", false),
            (Discover::FileName("b/*/x.yaml".into()), "a", true),
            (Discover::FileName("{x}".into()), "a", true),
            (Discover::FileName("{x*".into()), "a", true),
            (Discover::FileName("b".into()), "a", true),
            (Discover::FileName("f".into()), "z[1]", true),
            (Discover::FileName("[f]".into()), "z[1]", true),
            (Discover::Glob("**/x.yaml".into()), "a", true),
            (Discover::Glob("**/x.yaml".into()), "", true),
            (Discover::Glob("**/Kptfile".into()), "a", true),
            (Discover::Glob("*.yaml".into()), "a", false),
            (Discover::Glob("*.{yaml,yml}".into()), "", true),
            (Discover::Glob("**/*.json".into()), "", false),
        ] {
            let found = by_names(&discover, &entries, folder.as_bytes()).unwrap().unwrap();
            assert_eq!(found, expected, "{discover:?} in `{folder}`");
        }
        let mut linked = entries.clone();
        linked.insert(b"a/up".to_vec(), Entry::Link(b"../a/b".to_vec()));
        for (name, expected) in [("up/c/x.yaml", true), ("up/c/y.yaml", false), ("up/Kptfile", false), ("up", true)] {
            let found = by_names(&Discover::FileName(name.into()), &linked, b"a").unwrap().unwrap();
            assert_eq!(found, expected, "{name} over a linked folder");
        }
        assert!(by_names(&Discover::ByName, &entries, b"").is_none());
        assert!(by_names(&Discover::FileName("[".into()), &entries, b"").unwrap().is_err());
    }

    #[test]
    fn an_application_is_a_folder_of_the_archive() {
        let mut entries = entries(&["a/b/f"]);
        entries.insert(b"l".to_vec(), Entry::Link(b"a/b".to_vec()));
        for (path, folder) in [
            ("", Ok("")),
            (".", Ok("")),
            ("a/b", Ok("a/b")),
            ("./a//b/", Ok("a/b")),
            ("l/..", Ok("a")),
            ("l", Ok("a/b")),
        ] {
            let folder: Result<_, ()> = folder.map(|text: &str| text.as_bytes().to_vec());
            assert_eq!(app_folder(&entries, path).map_err(drop), folder, "{path}");
        }
        for (path, expected) in [
            ("..", "leads out"),
            ("a/../../x", "leads out"),
            ("/etc", "leads out"),
            ("x", "not a folder"),
            ("a/b/f", "not a folder"),
        ] {
            assert!(app_folder(&entries, path).unwrap_err().message.contains(expected), "{path}");
        }
    }
}
