//! Reads a stream of YAML documents as strictly as JSON: no repeated keys, no merge keys, no custom tags.
//!
//! Booleans are those of YAML 1.2, so `no` is a text. A number must be written as it is printed. YAML readers disagree
//! about `010`, `1_000` and `0x1F`, and `1.10` or the commit `1234567e8` would change silently.

use std::str::Utf8Error;

use serde_json::{Map, Number, Value};
use serde_saphyr::{DuplicateKeyPolicy, Error, Location, Options, Spanned, options::MergeKeyPolicy};

use super::{super::visible::one_line, MAX_VALUES, number, yaml_tree::YamlTree};

/// Why a text is not YAML as it is accepted here.
#[derive(Debug, thiserror::Error)]
pub enum YamlError {
    /// It is not text.
    #[error("not UTF-8: {0}")]
    NotUtf8(#[from] Utf8Error),
    /// The parser refuses it. The message is its own in one line, without its advice to programmers.
    #[error("{message}")]
    Syntax {
        /// The mistake, with line and column.
        message: String,
        /// The parser's error. In a box, since it is large.
        #[source]
        cause: Box<Error>,
    },
    /// It is YAML, but a number would change, or a key is repeated. The text has line and column.
    #[error("{0}")]
    Refused(String),
}

impl From<YamlError> for String {
    fn from(error: YamlError) -> Self {
        error.to_string()
    }
}

/// The most nodes in a stream. Each use of an alias counts in full.
const MAX_NODES: usize = 2_000_000;

/// Parses a stream of documents. Empty documents and a bare `null` are left out.
///
/// # Errors
/// On the first invalid document. The text has line and column.
pub fn parse(bytes: &[u8]) -> Result<Vec<Value>, YamlError> {
    read(bytes, |_| None)
}

/// As [`parse`], for files that the gateway writes: a number that JSON can write so keeps its text.
///
/// # Errors
/// As [`parse`].
pub fn parse_exact(bytes: &[u8]) -> Result<Vec<Value>, YamlError> {
    read(bytes, number::written)
}

/// Parses exactly one document of a source, as strictly as [`parse`]. A number that JSON can write so keeps its text. It may have as many
/// nodes as a JSON document has values; each use of an alias counts in full.
///
/// # Errors
/// As [`parse`], and when there is not exactly one document.
pub fn parse_one(bytes: &[u8]) -> Result<Value, YamlError> {
    let documents = read_at_most(MAX_VALUES, bytes, number::written)?;
    match <[Value; 1]>::try_from(documents) {
        Ok([document]) => Ok(document),
        Err(documents) if documents.is_empty() => Err(YamlError::Refused("it is blank".to_owned())),
        Err(documents) => Err(YamlError::Refused(format!("it has {} documents", documents.len()))),
    }
}

fn read(bytes: &[u8], kept: fn(&str) -> Option<Number>) -> Result<Vec<Value>, YamlError> {
    read_at_most(MAX_NODES, bytes, kept)
}

fn read_at_most(max_nodes: usize, bytes: &[u8], kept: fn(&str) -> Option<Number>) -> Result<Vec<Value>, YamlError> {
    let text = std::str::from_utf8(bytes)?;
    let documents = serde_saphyr::from_multiple_with_options::<Spanned<YamlTree<String>>>(text, options(max_nodes));
    let documents =
        documents.map_err(|error| YamlError::Syntax { message: message(&error), cause: Box::new(error) })?;
    documents.into_iter().map(|document| to_value(document, text, kept)).collect()
}

fn options(max_nodes: usize) -> Options {
    serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_events: 2 * max_nodes,
            max_nodes: max_nodes,
            max_documents: max_nodes,
        },
    }
}

/// The error in one line, without serde-saphyr's advice to programmers.
fn message(error: &Error) -> String {
    if let (Error::DuplicateMappingKey { key: Some(key), .. }, Some(at)) = (error.without_snippet(), error.location()) {
        return repeated_key(key, at);
    }
    one_line(&error.without_snippet().to_string())
}

/// The value. Every number must be written as it is printed, or be one that is `kept`.
fn to_value(node: Spanned<YamlTree<String>>, text: &str, kept: fn(&str) -> Option<Number>) -> Result<Value, YamlError> {
    let at = node.defined;
    match node.value {
        YamlTree::Scalar(Value::Number(number)) => {
            let written = written(at, text);
            if let Some(kept) = kept(written) {
                return Ok(Value::Number(kept));
            }
            if written == number.to_string() {
                return Ok(Value::Number(number));
            }
            let (line, column) = (at.line(), at.column());
            Err(YamlError::Refused(format!(
                "`{}` would be read as the number {number} at line {line}, column {column}; write that, or put it in quotes",
                written.escape_debug()
            )))
        }
        YamlTree::Scalar(value) => Ok(value),
        YamlTree::List(items) => items.into_iter().map(|item| to_value(item, text, kept)).collect(),
        YamlTree::Mapping(entries) => {
            let mut map = Map::new();
            for (key, value) in entries {
                // `1` and `"1"` are different keys in YAML, and the same key in JSON.
                if map.contains_key(&key) {
                    return Err(YamlError::Refused(repeated_key(&key, value.referenced)));
                }
                map.insert(key, to_value(value, text, kept)?);
            }
            Ok(Value::Object(map))
        }
    }
}

/// The text of the scalar at `at`.
pub fn written(at: Location, text: &str) -> &str {
    let span = at.span();
    let number = |bytes: Option<u64>| bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or_default();
    let (from, length) = (number(span.byte_offset()), number(span.byte_len()));
    text.get(from..from.saturating_add(length)).unwrap_or_default().trim()
}

fn repeated_key(key: &str, at: Location) -> String {
    format!("the key `{}` stands twice at line {}, column {}", key.escape_debug(), at.line(), at.column())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        parse(text.as_bytes()).map_or_else(String::from, |documents| Value::Array(documents).to_string())
    }

    #[test]
    fn what_is_read() {
        for (text, documents) in [
            ("a: 1\nb: [x, {c: -1.5}]\n", r#"[{"a":1,"b":["x",{"c":-1.5}]}]"#),
            ("--- {ä: '🚀'}\n---\n---\n# nothing\n---\nnull\n---\n[]\n...\n", r#"[{"ä":"🚀"},[]]"#),
            ("a: ä\r\nb: 7 # seven\r\n---\nb: 8\r\n", r#"[{"a":"ä","b":7},{"b":8}]"#),
            ("", "[]"),
            ("---\n---\n", "[]"),
            // Norway, and those who live with it.
            (
                "[no, NO, yes, on, off, y, n, true, False, ~]",
                r#"[["no","NO","yes","on","off","y","n",true,false,null]]"#,
            ),
            (
                "[12:30:45, 2024-01-01, 1.2.3, 0.1.x, '010', \"1e3\"]",
                r#"[["12:30:45","2024-01-01","1.2.3","0.1.x","010","1e3"]]"#,
            ),
            ("[18446744073709551615, 0, -7, 1.0]", "[[18446744073709551615,0,-7,1.0]]"),
            ("{1: x, 010: y, true: z}", r#"[{"1":"x","010":"y","true":"z"}]"#),
            ("a: &x {b: 1}\nc: *x\n", r#"[{"a":{"b":1},"c":{"b":1}}]"#),
            ("{\"a\": \"\\ud83d\\ude80\\/\\u0000\",\t\"b\":[1,2]}", r#"[{"a":"🚀/\u0000","b":[1,2]}]"#),
            ("a: !!str 010\n", r#"[{"a":"010"}]"#),
        ] {
            assert_eq!(read(text), documents, "{text}");
        }
    }

    #[test]
    fn refuses_what_readers_disagree_about() {
        for (text, says) in [
            ("a: 1\nb: 2\na: 3\n", "the key `a` stands twice at line 3, column 1"),
            ("{1: x, '1': y}", "stands twice"),
            ("a: &x {b: 1}\n<<: *x\n", "merge keys are not allowed"),
            ("a: .inf", "non-finite"),
            ("a: .NaN", "non-finite"),
            ("a: 1e999", "non-finite"),
            ("a: !Ref x", "unsupported tag `!Ref`"),
            ("a: 'x", "unclosed quote"),
            ("a: 1\n---\nb: [", "unclosed bracket '[' at line 3"),
            ("[a]: x", "expected string scalar"),
            ("[] []", "line 1, column 4"),
            ("a: 010", "`010` would be read as the number 10.0 at line 1, column 4"),
            ("ä: 🚀\nb: 0x1F", "`0x1F` would be read as the number 31 at line 2"),
            ("a: 1_000", "`1_000`"),
            ("a: +1", "`+1`"),
            ("a: 1.10", "`1.10` would be read as the number 1.1"),
            ("sha: 1234567e8", "`1234567e8`"),
            ("a: 123456789012345678901234567890", "`123456789012345678901234567890`"),
        ] {
            assert!(read(text).contains(says), "{text}: {}", read(text));
        }
        assert!(parse(b"a: \xff").unwrap_err().to_string().contains("UTF-8"));
    }

    #[test]
    fn one_document_of_a_source_keeps_its_numbers() {
        let one = |text: &str| parse_one(text.as_bytes()).map_or_else(String::from, |document| document.to_string());
        for (text, expected) in [
            ("version: 1.10\nn: [7, -0.50]", r#"{"version":1.10,"n":[7,-0.50]}"#),
            ("--- [a]\n...\n", r#"["a"]"#),
            ("a: 010", "`010` would be read as the number 10.0 at line 1, column 4; write that, or put it in quotes"),
            ("# nothing\n", "it is blank"),
            ("a\n---\nb\n", "it has 2 documents"),
        ] {
            assert_eq!(one(text), expected, "{text}");
        }
        let many = |count: usize| one(&"- 1\n".repeat(count));
        assert!(many(MAX_VALUES - 1).starts_with("[1,1"));
        assert!(many(MAX_VALUES + 1).contains("budget breached"), "{}", many(MAX_VALUES + 1));
        let text = "x".repeat(1_000_000);
        let long = one(&format!("a: &a {text}\nb: [{}]", "*a, ".repeat(90)));
        assert!(long.contains("budget breached"), "{} bytes", long.len());
    }

    #[test]
    fn deep_and_expanding_documents_are_refused() {
        for deep in ["[".repeat(100_000), "- ".repeat(100_000)] {
            parse(deep.as_bytes()).unwrap_err();
        }
        let level = |level: usize| format!("a{level}: &a{level} [{}]\n", format!("*a{},", level - 1).repeat(10));
        let levels: Vec<String> = (1..10).map(level).collect();
        let bomb = format!("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n{}", levels.concat());
        assert!(read(&bomb).contains("budget breached"), "{}", read(&bomb));
        assert_eq!(parse("a: x\n---\n".repeat(5000).as_bytes()).unwrap().len(), 5000);
    }
}
