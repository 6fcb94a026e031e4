//! A stream of YAML documents, read as strictly as JSON is: no key twice, no merge keys, no tags of its own.
//!
//! Booleans are those of YAML 1.2, so that `no` is text. A number must be written as it is printed: `010`, `1_000` and
//! `0x1F` are different things to different readers, and `1.10` or the commit `1234567e8` would be changed silently.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{DuplicateKeyPolicy, Error, Options, Spanned, options::MergeKeyPolicy};

/// The most nodes that a stream may hold, aliases spelt out.
const MAX_NODES: usize = 2_000_000;

/// Parses a stream of documents. Those that hold nothing, or a bare `null`, are left out.
///
/// # Errors
/// On the first document that is none; the text gives line and column.
pub(crate) fn parse(bytes: &[u8]) -> Result<Vec<Value>, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| format!("not UTF-8: {error}"))?;
    let documents = serde_saphyr::from_multiple_with_options::<Spanned<Tree>>(text, options());
    let documents = documents.map_err(|error| message(&error))?;
    documents.into_iter().map(|document| settle(document, text)).collect()
}

fn options() -> Options {
    serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_events: 2 * MAX_NODES,
            max_nodes: MAX_NODES,
            max_documents: MAX_NODES,
        },
    }
}

/// The error in one line, and without advice on a program's options.
fn message(error: &Error) -> String {
    if let (Error::DuplicateMappingKey { key: Some(key), .. }, Some(at)) = (error.without_snippet(), error.location()) {
        let (line, column) = (at.line(), at.column());
        return format!("the key `{}` stands twice at line {line}, column {column}", key.escape_debug());
    }
    error.without_snippet().to_string().replace(char::is_control, " ")
}

/// The value, with every number held against its text.
fn settle(node: Spanned<Tree>, text: &str) -> Result<Value, String> {
    let at = node.defined;
    Ok(match node.value {
        Tree::Number(number) => {
            let [from, length] = [at.span().byte_offset(), at.span().byte_len()]
                .map(|bytes| bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or_default());
            let written = text.get(from..from.saturating_add(length)).unwrap_or_default().trim();
            if written != number.to_string() {
                let (line, column) = (at.line(), at.column());
                return Err(format!(
                    "`{}` would be read as the number {number} at line {line}, column {column}; \
                     write that, or put it in quotes",
                    written.escape_debug()
                ));
            }
            Value::Number(number)
        }
        Tree::Other(value) => value,
        Tree::List(items) => Value::Array(items.into_iter().map(|item| settle(item, text)).collect::<Result<_, _>>()?),
        Tree::Mapping(entries) => {
            let entries = entries.into_iter().map(|(key, value)| Ok((key, settle(value, text)?)));
            Value::Object(entries.collect::<Result<Map<_, _>, String>>()?)
        }
    })
}

/// A node, whose numbers are not believed yet.
enum Tree {
    Number(Number),
    Other(Value),
    List(Vec<Spanned<Tree>>),
    Mapping(Vec<(String, Spanned<Tree>)>),
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Other(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Other(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Tree, E> {
        Number::from_f64(value).map(Tree::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Other(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Tree, A::Error> {
        let (mut map, mut keys) = (Vec::new(), std::collections::HashSet::new());
        while let Some((key, value)) = entries.next_entry::<String, _>()? {
            // Also `1` and `"1"`, which are different keys in YAML.
            if !keys.insert(key.clone()) {
                return Err(A::Error::custom(format!("the key `{}` stands twice", key.escape_debug())));
            }
            map.push((key, value));
        }
        Ok(Tree::Mapping(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        parse(text.as_bytes()).map_or_else(|error| error, |documents| Value::Array(documents).to_string())
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
    fn what_is_refused() {
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
        assert!(parse(b"a: \xff").unwrap_err().contains("UTF-8"));
    }

    #[test]
    fn work_has_an_end() {
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
