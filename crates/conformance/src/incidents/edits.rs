//! Changes of a source's reply: the same document with a shorter list.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// How many items a page has.
const PAGE: usize = 100;
/// Keys that announce another page, at the top or in an object there (`metadata.continue`, `pagination.next`, `_links.next`).
const NEXT: [&str; 8] =
    ["next", "nextPage", "next_page", "nextPageToken", "nextToken", "nextLink", "@odata.nextLink", "continue"];

/// The first half of the list, rounded down.
pub(super) fn half(head: &str, body: &[u8]) -> Option<(String, Vec<u8>)> {
    with_list(head, body, |list| list.truncate(list.len() / 2))
}

/// The list without its items.
pub(super) fn empty(head: &str, body: &[u8]) -> Option<(String, Vec<u8>)> {
    with_list(head, body, Vec::clear)
}

/// The first page, or the first 100 items, with nothing that announces more. `None` if that is the whole list.
pub(super) fn first_page(head: &str, body: &[u8]) -> Option<(String, Vec<u8>)> {
    let mut document: Value = serde_json::from_slice(body).ok()?;
    let list = document.pointer_mut(&path_of_list(&document)?)?.as_array_mut()?;
    let is_longer = list.len() > PAGE;
    list.truncate(PAGE);
    let is_page = remove_next(&mut document);
    let has_link = header_lines(head).any(|line| is_named(line, "link"));
    (is_longer || is_page || has_link).then(|| whole(head, &document))
}

fn with_list(head: &str, body: &[u8], edit: fn(&mut Vec<Value>)) -> Option<(String, Vec<u8>)> {
    let mut document: Value = serde_json::from_slice(body).ok()?;
    edit(document.pointer_mut(&path_of_list(&document)?)?.as_array_mut()?);
    Some(whole(head, &document))
}

/// The JSON pointer of the list: of the arrays that are least deep and not empty, the longest.
fn path_of_list(document: &Value) -> Option<String> {
    let mut level = vec![(String::new(), document)];
    while !level.is_empty() {
        let arrays = level.iter().filter_map(|(path, value)| Some((path, value.as_array()?.len())));
        // The first of equally long ones.
        let longest = arrays.filter(|(_, length)| *length > 0).rev().max_by_key(|(_, length)| *length);
        if let Some((path, _)) = longest {
            return Some(path.clone());
        }
        let objects = level.iter().filter_map(|(path, value)| Some((path, value.as_object()?)));
        let step = |path: &str, key: &str| format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
        level = objects
            .flat_map(|(path, members)| members.iter().map(move |(key, value)| (step(path, key), value)))
            .collect();
    }
    None
}

/// Removes what announces another page, and returns whether there was anything.
fn remove_next(document: &mut Value) -> bool {
    let Some(members) = document.as_object_mut() else { return false };
    let mut found = remove_keys(members);
    for object in members.values_mut().filter_map(Value::as_object_mut) {
        found |= remove_keys(object);
    }
    found
}

fn remove_keys(members: &mut Map<String, Value>) -> bool {
    let is_next = |key: &str, value: &Value| NEXT.contains(&key) && !value.is_null() && value != "" && value != false;
    let before = members.len();
    members.retain(|key, value| !is_next(key, value));
    members.len() < before
}

fn header_lines(head: &str) -> impl Iterator<Item = &str> {
    head.lines().filter(|line| !line.is_empty())
}

fn is_named(line: &str, name: &str) -> bool {
    line.split(':').next().is_some_and(|found| found.eq_ignore_ascii_case(name))
}

/// The reply with `document` as its body. An `ETag` or a digest would belong to another body, and a `Link` to another list.
fn whole(head: &str, document: &Value) -> (String, Vec<u8>) {
    let body = document.to_string().into_bytes();
    let dropped = ["content-length", "link", "etag", "last-modified", "content-md5", "digest", "content-digest"];
    let mut edited = String::new();
    for line in header_lines(head).filter(|line| !dropped.iter().any(|name| is_named(line, name))) {
        let _ = write!(edited, "{line}\r\n");
    }
    let _ = write!(edited, "Content-Length: {}\r\n\r\n", body.len());
    (edited, body)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nETag: \"x\"\r\nX: y\r\n\r\n";

    fn edited(edit: crate::upstream::Edit, head: &str, document: &Value) -> Option<Value> {
        let (head, body) = edit(head, document.to_string().as_bytes())?;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head:?}");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head:?}");
        assert!(!head.contains("ETag") && !head.contains("Link"), "{head:?}");
        Some(serde_json::from_slice(&body).unwrap())
    }

    #[test]
    fn the_list_is_the_longest_of_the_least_deep() {
        for (document, path) in [
            (json!([1]), Some("")),
            (json!({"unreachable": [], "a/b": [{"labels": [1, 2, 3]}, {}], "c": [1]}), Some("/a~1b")),
            (json!({"errors": [], "data": {"n": 1, "items": [1]}}), Some("/data/items")),
            (json!({"a": [1], "b": [2]}), Some("/a")),
            (json!({"items": []}), None),
            (json!("text"), None),
        ] {
            assert_eq!(path_of_list(&document).as_deref(), path, "{document}");
        }
    }

    #[test]
    fn a_half_is_rounded_down_and_the_rest_stays() {
        let answer = edited(half, HEAD, &json!({"items": [1, 2, 3], "total": 3})).unwrap();
        assert_eq!(answer, json!({"items": [1], "total": 3}));
        assert_eq!(edited(half, HEAD, &json!([1])).unwrap(), json!([]));
        assert_eq!(edited(empty, HEAD, &json!([1, 2])).unwrap(), json!([]));
        assert!(half(HEAD, b"<html>").is_none());
    }

    #[test]
    fn a_first_page_announces_no_other() {
        let items: Vec<usize> = (0..120).collect();
        assert_eq!(edited(first_page, HEAD, &json!(items)).unwrap().as_array().unwrap().len(), 100);
        assert_eq!(edited(first_page, HEAD, &json!(items[..100])), None);
        assert_eq!(edited(first_page, HEAD, &json!({"items": [1], "next": null, "page": {"continue": ""}})), None);
        let linked = HEAD.replace("X: y", "Link: <x>; rel=\"next\"");
        assert_eq!(edited(first_page, &linked, &json!([1])).unwrap(), json!([1]));
        let page = json!({"items": [1], "metadata": {"continue": "abc", "n": 1}});
        assert_eq!(edited(first_page, HEAD, &page).unwrap(), json!({"items": [1], "metadata": {"n": 1}}));
    }
}
