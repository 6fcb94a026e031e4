//! The modules of all crates and their uses of each other, read from the text of the files. A crate in `crates/` counts as a module
//! at the top of the program.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::LazyLock,
};

use regex::Regex;

/// The names of the crates in `crates/`.
pub(crate) static CRATES: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let entries = std::fs::read_dir(repository().join("crates")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
});

/// A path that begins at a crate in `crates/`. Not within the braces of a `use`, where names are of what stands before.
static IN_CRATE: LazyLock<Regex> = LazyLock::new(|| {
    let crates: Vec<&str> = CRATES.iter().map(String::as_str).collect();
    Regex::new(&format!(r"(^|[^\w:.$])(?:::)?((?:{})::)", crates.join("|"))).unwrap()
});

/// The beginning of a `use` with a group.
static USE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?:^|\n)\s*(?:pub(?:\([^)]*\))? )?use [\w:]*::$").unwrap());

/// A path that begins at the root, up to a brace.
static PATH: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b(crate|self|super)((?:::\w+)*)(?:::(\{))?").unwrap());

/// Names from the crate's root on, such as `["engine", "cache"]`. Empty for the root itself.
pub(crate) type Module = Vec<String>;

/// All modules that have a file.
pub(crate) struct Modules {
    files: BTreeMap<String, Module>,
    /// A file, its module, and a module that it uses.
    uses: Vec<(String, Module, Module)>,
}

/// The files of all crates, by their paths in `src/`, or as `<crate>/<path>`. The root of a crate in `crates/` is `<crate>.rs`.
pub(crate) fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let root = repository().join("src");
    read(&root, &root, &mut found);
    for name in CRATES.iter() {
        let root = repository().join("crates").join(name).join("src");
        let mut files = Vec::new();
        read(&root, &root, &mut files);
        found.extend(files.into_iter().map(|(file, source)| {
            (if file == "lib.rs" { format!("{name}.rs") } else { format!("{name}/{file}") }, source)
        }));
    }
    found
}

/// The Rust files of the repository, by their paths within it.
pub(crate) fn rust_files() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for folder in ["src", "crates", "tests", "benches", "fuzz"] {
        read_rust(&repository().join(folder), &mut found);
    }
    found
}

fn read_rust(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("target") {
                read_rust(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(repository()).unwrap().to_str().unwrap().to_owned();
            found.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
}

pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(root: &Path, folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(root, &path, found);
        } else {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            found.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
}

impl Modules {
    pub(crate) fn read() -> Self {
        let sources = sources();
        let module = |file: &str| match file.trim_end_matches(".rs") {
            "lib" => Vec::new(),
            path => path.split('/').map(str::to_owned).collect(),
        };
        let files: BTreeMap<String, Module> = sources.iter().map(|(file, _)| (file.clone(), module(file))).collect();
        let known: BTreeSet<&Module> = files.values().collect();
        let mut uses = Vec::new();
        for (file, source) in &sources {
            let own = &files[file];
            for path in paths(own, &from_the_root(own, &code(source))) {
                let nearest =
                    (0..=path.len()).rev().map(|count| &path[..count]).find(|path| known.contains(&path.to_vec()));
                uses.push((file.clone(), own.clone(), nearest.unwrap_or_default().to_vec()));
            }
        }
        uses.sort();
        uses.dedup();
        Self { files, uses }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &Module)> {
        self.files.iter().map(|(file, module)| (&**file, module)).filter(|(file, _)| *file != "main.rs")
    }

    pub(crate) fn contains(&self, module: &Module) -> bool {
        self.files.values().any(|known| known == module)
    }

    pub(crate) fn uses(&self) -> impl Iterator<Item = (&str, &Module, &Module)> {
        self.uses.iter().map(|(file, module, used)| (&**file, module, used))
    }

    /// The sets of modules that use each other in a circle. Uses between a module and its submodules do not count.
    pub(crate) fn circles(&self) -> Vec<BTreeSet<String>> {
        let mut next: BTreeMap<&Module, BTreeSet<&Module>> = BTreeMap::new();
        for (_, module, used) in self.uses() {
            if !module.starts_with(used) && !used.starts_with(module) {
                next.entry(module).or_default().insert(used);
            }
        }
        let reached: BTreeMap<&Module, BTreeSet<&Module>> =
            next.keys().map(|module| (*module, reachable(&next, module))).collect();
        let mut circles: Vec<BTreeSet<String>> = Vec::new();
        for (module, from_here) in reached.iter().filter(|(module, from_here)| from_here.contains(*module)) {
            let both = from_here.iter().filter(|other| reached.get(*other).is_some_and(|back| back.contains(module)));
            let circle: BTreeSet<String> = both.map(|module| module.join("::")).collect();
            if !circles.contains(&circle) {
                circles.push(circle);
            }
        }
        circles
    }
}

fn reachable<'m>(next: &BTreeMap<&'m Module, BTreeSet<&'m Module>>, from: &Module) -> BTreeSet<&'m Module> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&Module> = next[from].iter().copied().collect();
    while let Some(module) = open.pop() {
        if found.insert(module) {
            open.extend(next.get(module).into_iter().flatten().copied());
        }
    }
    found
}

/// `source` without comments and without its unit tests, which may use anything.
fn code(source: &str) -> String {
    let (code, _) = source.split_once("#[cfg(test)]\nmod tests {").unwrap_or((source, ""));
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// `code` with all paths from the root of the program on.
fn from_the_root(own: &Module, code: &str) -> String {
    let in_program = match own.first().filter(|name| CRATES.contains(*name)) {
        Some(name) => code.replace("crate::", &format!("crate::{name}::")),
        None => code.to_owned(),
    };
    let statements = in_program.split_inclusive(';').map(|statement| match statement.split_once('{') {
        Some((start, group)) if USE.is_match(start) => IN_CRATE.replace_all(start, "${1}crate::$2") + "{" + group,
        _ => IN_CRATE.replace_all(statement, "${1}crate::$2"),
    });
    statements.collect()
}

/// All paths in `code`, from the root on. `own` is the module of the code.
fn paths(own: &Module, code: &str) -> Vec<Module> {
    let mut found = Vec::new();
    for capture in PATH.captures_iter(code) {
        let start = capture.get(0).unwrap();
        if code[..start.start()].ends_with("::") {
            continue;
        }
        let mut base = if &capture[1] == "crate" { Vec::new() } else { own.clone() };
        if &capture[1] == "super" {
            base.pop();
        }
        for name in capture[2].split("::").filter(|name| !name.is_empty()) {
            if name == "super" { _ = base.pop() } else { base.push(name.to_owned()) }
        }
        if capture.get(3).is_some() {
            expand(&base, &code[start.end()..], &mut found);
        } else {
            found.push(base);
        }
    }
    found
}

/// The paths of a group `base::{…}`. `rest` begins after the brace. Returns the text after the closing brace.
fn expand<'c>(base: &Module, mut rest: &'c str, found: &mut Vec<Module>) -> &'c str {
    let mut path = base.clone();
    loop {
        rest = rest.trim_start();
        let name = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if name > 0 {
            if &rest[..name] != "self" {
                path.push(rest[..name].to_owned());
            }
            rest = &rest[name..];
        } else if let Some(after) = rest.strip_prefix("::{") {
            rest = expand(&path, after, found);
            path.clone_from(base);
        } else if let Some(after) = rest.strip_prefix("::") {
            rest = after;
        } else {
            if path != *base || rest.starts_with('*') {
                found.push(std::mem::replace(&mut path, base.clone()));
            }
            let Some(c) = rest.chars().next() else { return rest };
            rest = &rest[c.len_utf8()..];
            if c == '}' {
                return rest;
            }
        }
    }
}
