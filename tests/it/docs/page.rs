//! The Markdown files of the repository, read as far as the tests need.

use std::path::{Path, PathBuf};

/// The Markdown files outside of `docs/`.
const OTHERS: [&str; 11] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "ROADMAP.md",
    "deploy/README.md",
    "deploy/helm/appset-gateway/README.md",
    "deploy/helm/cmp-plugin/README.md",
    "benches/README.md",
];

/// A Markdown file.
pub(super) struct Page {
    /// Its path within the repository, such as `docs/http.md`.
    pub path: String,
    text: String,
}

/// A fenced block.
pub(super) struct Block {
    /// The path of its page.
    pub page: String,
    /// The line of its fence, from 1.
    pub line: usize,
    /// The line of its closing fence.
    pub end: usize,
    /// The text after the fence: a language, and perhaps more.
    pub language: String,
    /// Its lines, without the fence's indentation.
    pub text: String,
}

impl Block {
    /// Its position: `docs/http.md:12`.
    pub(super) fn position(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }
}

/// The repository's folder.
pub(super) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

impl Page {
    /// All pages.
    pub(super) fn all() -> Vec<Self> {
        let mut paths: Vec<String> = OTHERS.map(str::to_owned).into();
        paths.extend(markdown_below(&repository().join("docs")));
        paths.into_iter().map(|path| Self::read(&path)).collect()
    }

    /// The page at `path` within the repository.
    pub(super) fn read(path: &str) -> Self {
        let text = std::fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        Self { path: path.to_owned(), text }
    }

    /// All of it.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Its fenced blocks.
    pub(super) fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<(Block, usize)> = None;
        for (index, line) in self.text.lines().enumerate() {
            let fence = line.trim_start().strip_prefix("```");
            match (&mut open, fence) {
                (None, Some(language)) => {
                    let block = Block {
                        page: self.path.clone(),
                        line: index + 1,
                        end: 0,
                        language: language.trim().to_owned(),
                        text: String::new(),
                    };
                    open = Some((block, line.len() - line.trim_start().len()));
                }
                (Some((block, _)), Some(_)) => {
                    block.end = index + 1;
                    blocks.extend(open.take().map(|(block, _)| block));
                }
                (Some((block, indent)), None) => {
                    block.text += line.get(*indent..).unwrap_or_default();
                    block.text += "\n";
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: the last fence is not closed", self.path);
        blocks
    }

    /// Its lines outside of fenced blocks, each with its number from 1.
    pub(super) fn prose(&self) -> Vec<(usize, &str)> {
        let blocks = self.blocks();
        let is_code = |line| blocks.iter().any(|block| (block.line..=block.end).contains(&line));
        self.text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
            .filter(|(line, _)| !is_code(*line))
            .collect()
    }

    /// The anchors of its headings, as GitHub makes them: a repeated one gets a number.
    pub(super) fn anchors(&self) -> Vec<String> {
        let mut anchors: Vec<String> = Vec::new();
        for (_, line) in self.prose() {
            let Some(heading) = line.strip_prefix('#').map(|rest| rest.trim_start_matches('#')) else { continue };
            let Some(heading) = heading.strip_prefix(' ') else { continue };
            let first = slug(heading);
            let numbered = (1..).map(|number| format!("{first}-{number}"));
            let free = std::iter::once(first.clone()).chain(numbered).find(|anchor| !anchors.contains(anchor));
            anchors.extend(free);
        }
        anchors
    }
}

/// The anchor of a heading. Of a link only the text counts.
fn slug(heading: &str) -> String {
    let link = regex::Regex::new(r"\[([^\]]*)\]\([^)]*\)").unwrap();
    let text = link.replace_all(heading.trim(), "$1").to_lowercase();
    let kept = text.chars().filter(|letter| letter.is_alphanumeric() || "-_ ".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

/// The paths, within the repository, of the Markdown files in `folder` and its folders.
fn markdown_below(folder: &Path) -> Vec<String> {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    let mut found = Vec::new();
    for path in entries {
        if path.is_dir() {
            found.extend(markdown_below(&path));
        } else if path.extension().is_some_and(|end| end == "md") {
            found.push(path.strip_prefix(repository()).unwrap().to_str().unwrap().to_owned());
        }
    }
    found
}

#[test]
fn anchors_are_those_of_github() {
    for (heading, anchor) in [
        ("Limits of expressions and templates", "limits-of-expressions-and-templates"),
        ("`kind: GeneratorPlugin`", "kind-generatorplugin"),
        ("When it's down: 503, then?", "when-its-down-503-then"),
        ("I1 – an [answer](x.md) is whole", "i1--an-answer-is-whole"),
        ("`max_in_flight`", "max_in_flight"),
    ] {
        assert_eq!(slug(heading), anchor);
    }
}
