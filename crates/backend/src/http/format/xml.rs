//! XML as values, in a simple mapping:
//!
//! - The document is an object with one key, the name of its root element.
//! - An element with neither attributes nor elements in it is its text.
//! - Any other element is an object: attributes by `@name`, elements by their names, and its own text, if it is not blank, as `#text`.
//! - An element that stands once is its value, several of one name are a list. Paths in `xmlLists` are always lists.
//!
//! Names are without their namespace prefixes. A DTD is refused, and with it all entities but those of XML itself.

use roxmltree::{Document, Node, ParsingOptions};
use serde_json::{Map, Value};

/// The most elements, texts and comments of a document.
const MAX_NODES: u32 = 500_000;
/// The most levels of elements. JSON has as many.
const MAX_LEVELS: usize = 120;

/// Why a text is not XML as it is accepted here.
#[derive(Debug, thiserror::Error)]
pub(super) enum XmlError {
    /// The parser refuses it.
    #[error("{0}")]
    Syntax(#[from] roxmltree::Error),
    /// It says that it has another encoding.
    #[error("it is in `{0}`, and only UTF-8 is read")]
    Encoding(String),
    /// Elements are nested too deeply.
    #[error("it has more than {MAX_LEVELS} levels")]
    TooDeep,
    /// Two attributes differ only in their prefixes.
    #[error("two attributes of `{0}` are called `{1}`")]
    Twice(String, String),
}

/// The value of the document `text`. `lists` are the paths of elements that are always lists.
pub(super) fn parse(text: &str, lists: &[String]) -> Result<Value, XmlError> {
    if let Some(encoding) = declared_encoding(text).filter(|name| !super::is_utf8(name)) {
        return Err(XmlError::Encoding(encoding.chars().take(40).collect()));
    }
    let document = Document::parse_with_options(text, ParsingOptions { nodes_limit: MAX_NODES, ..Default::default() })?;
    let root = document.root_element();
    let name = root.tag_name().name();
    Ok(Value::Object(Map::from_iter([(name.to_owned(), value_of(root, name, lists, MAX_LEVELS)?)])))
}

/// The encoding in `<?xml … encoding="…"?>`.
fn declared_encoding(text: &str) -> Option<&str> {
    let (declaration, _) = text.strip_prefix("<?xml")?.split_once("?>")?;
    let after = declaration.split_once("encoding")?.1.trim_start().strip_prefix('=')?.trim_start();
    let quote = after.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    after[1..].split(quote).next()
}

/// The value of `node`, which stands at `path`. It may have this many levels.
fn value_of(node: Node<'_, '_>, path: &str, lists: &[String], levels: usize) -> Result<Value, XmlError> {
    let levels = levels.checked_sub(1).ok_or(XmlError::TooDeep)?;
    let mut object = Map::new();
    for attribute in node.attributes() {
        let name = attribute.name();
        if object.insert(format!("@{name}"), Value::from(attribute.value())).is_some() {
            return Err(XmlError::Twice(path.to_owned(), name.to_owned()));
        }
    }
    for list in lists {
        if let Some((parent, name)) = list.rsplit_once('/')
            && parent == path
        {
            object.insert(name.to_owned(), Value::Array(Vec::new()));
        }
    }
    for child in node.children().filter(Node::is_element) {
        let name = child.tag_name().name();
        let value = value_of(child, &format!("{path}/{name}"), lists, levels)?;
        add(&mut object, name, value);
    }
    let text: String = node.children().filter(Node::is_text).filter_map(|text| text.text()).collect();
    if object.is_empty() {
        return Ok(Value::String(text));
    }
    if !text.trim().is_empty() {
        object.insert("#text".to_owned(), Value::from(text.trim()));
    }
    Ok(Value::Object(object))
}

/// Adds an element. No element is a list by itself, so a list holds those of this name.
fn add(object: &mut Map<String, Value>, name: &str, value: Value) {
    match object.get_mut(name) {
        Some(Value::Array(list)) => list.push(value),
        Some(first) => {
            let first_value = first.take();
            *first = Value::Array(vec![first_value, value]);
        }
        None => _ = object.insert(name.to_owned(), value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, lists: &[&str]) -> String {
        let lists: Vec<String> = lists.iter().map(|list| (*list).to_owned()).collect();
        parse(text, &lists).map_or_else(|error| error.to_string(), |value| value.to_string())
    }

    #[test]
    fn elements_become_values() {
        for (text, expected) in [
            ("<a/>", r#"{"a":""}"#),
            ("<a> x <!-- c -->y</a>", r#"{"a":" x y"}"#),
            ("<a><![CDATA[<b>]]>&amp;&#65;</a>", r#"{"a":"<b>&A"}"#),
            ("<a b='1'/>", r#"{"a":{"@b":"1"}}"#),
            ("<a b='1'>x</a>", r##"{"a":{"@b":"1","#text":"x"}}"##),
            ("<a>\n <b>1</b>\n <c>2</c>\n</a>", r#"{"a":{"b":"1","c":"2"}}"#),
            ("<a>x<b/>y</a>", r##"{"a":{"b":"","#text":"xy"}}"##),
            ("<a><b>1</b><c/><b>2</b><b/></a>", r#"{"a":{"b":["1","2",""],"c":""}}"#),
            (
                "<?xml version=\"1.0\" encoding=\"utf-8\"?><a xmlns='u:x' xmlns:p='u:y'><p:b p:c='1'/></a>",
                r#"{"a":{"b":{"@c":"1"}}}"#,
            ),
        ] {
            assert_eq!(read(text, &[]), expected, "{text}");
        }
    }

    /// With and without elements, a list is one.
    #[test]
    fn a_list_is_always_a_list() {
        let lists = ["r/c/item", "r/o"];
        for (text, expected) in [
            ("<r/>", r#"{"r":{"o":[]}}"#),
            ("<r><c/></r>", r#"{"r":{"o":[],"c":{"item":[]}}}"#),
            ("<r><c><item>1</item></c><o/></r>", r#"{"r":{"o":[""],"c":{"item":["1"]}}}"#),
            ("<r><c><item/><item/></c><o/><o/></r>", r#"{"r":{"o":["",""],"c":{"item":["",""]}}}"#),
            ("<error/>", r#"{"error":""}"#),
        ] {
            assert_eq!(read(text, &lists), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_one_document_is_refused() {
        let (deep, wide) = ("<a>".repeat(200) + &"</a>".repeat(200), format!("<a>{}</a>", "<b/>".repeat(500_001)));
        for (text, says) in [
            ("", "root"),
            ("[]", "unknown token"),
            ("<a>", "root"),
            ("<a></b>", "expected 'a' tag, not 'b'"),
            ("<a/><b/>", "unknown token"),
            ("<a b='1' b='2'/>", "attribute 'b'"),
            ("<a xmlns:p='u:1' xmlns:q='u:2' p:b='1' q:b='2'/>", "two attributes of `a` are called `b`"),
            ("<!DOCTYPE a [<!ENTITY e 'x'>]><a>&e;</a>", "DTD"),
            ("<a>&nbsp;</a>", "nbsp"),
            ("<?xml version='1.0' encoding='ISO-8859-1'?><a/>", "it is in `ISO-8859-1`, and only UTF-8 is read"),
            (&*deep, "more than 120 levels"),
            (&*wide, "limit"),
        ] {
            let error = read(text, &[]);
            assert!(error.contains(says), "{}: {error}", text.chars().take(60).collect::<String>());
        }
    }

    #[test]
    fn no_depth_overflows_the_stack() {
        assert!(!read(&"<a>".repeat(100_000), &[]).starts_with('{'));
        assert!(!read(&("<a>".repeat(100_000) + &"</a>".repeat(100_000)), &[]).starts_with('{'));
    }
}
