use http::{HeaderMap, StatusCode};

use super::*;
use domain::secret::Secrets;

fn reply(content_type: &str, body: &[u8]) -> Reply {
    let mut headers = HeaderMap::new();
    if !content_type.is_empty() {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_str(content_type).unwrap());
    }
    let body = Bytes::copy_from_slice(body);
    Reply { status: StatusCode::OK, headers, body, secrets: Secrets::default(), retry_after: None, attempts: 1 }
}

fn documents(format: Format, types: Option<ContentTypes>) -> Documents {
    Documents { format, types, lists: Vec::new() }
}

#[test]
fn content_types_are_those_of_the_format() {
    let all = [
        "application/json",
        "application/vnd.api+json; charset=utf-8",
        "application/yaml",
        "Text/YAML",
        "application/vnd.x+yaml",
        "text/plain; charset=utf-8",
        "text/csv",
        "text/html",
        "application/xml",
        "text/xml",
        "application/atom+xml",
        "application/xhtml+xml",
        "application/octet-stream",
        "",
    ];
    let accepted = |format, types: Option<ContentTypes>| {
        let documents = documents(format, types);
        let is_accepted = |content_type: &&str| documents.check_type(&reply(content_type, b"")).is_ok();
        all.into_iter().filter(is_accepted).collect::<Vec<_>>()
    };
    assert_eq!(accepted(Format::Json, None), all[..2]);
    assert_eq!(accepted(Format::Yaml, None), all[..5]);
    assert_eq!(accepted(Format::Text, None), ["Text/YAML", "text/plain; charset=utf-8", "text/csv", "text/xml"]);
    assert_eq!(accepted(Format::Xml, None), ["application/xml", "text/xml", "application/atom+xml"]);
    assert_eq!(accepted(Format::Xml, Some(ContentTypes::Any(AnyContentType::Any))), all);
    let listed = ContentTypes::Listed(vec!["Text/Plain".to_owned(), "application/octet-stream".to_owned()]);
    assert_eq!(accepted(Format::Json, Some(listed)), ["text/plain; charset=utf-8", "application/octet-stream"]);
    let listed = ContentTypes::Listed(vec!["text/*".to_owned()]);
    assert_eq!(accepted(Format::Json, Some(listed)).len(), 5);
}

#[test]
fn documents_become_json() {
    let json = |format, content_type: &str, body: &[u8]| {
        let json = documents(format, None).to_json(&reply(content_type, body));
        json.map_or_else(|error| error.message, |json| String::from_utf8(json.to_vec()).unwrap())
    };
    for (format, content_type, body, expected) in [
        (Format::Json, "application/json", &b"not read here"[..], "not read here"),
        (Format::Yaml, "text/yaml", b"a: 1.10\nb: [no]\n", r#"{"a":1.10,"b":["no"]}"#),
        (Format::Yaml, "application/json", br#"{"a":[1]}"#, r#"{"a":[1]}"#),
        (Format::Text, "text/plain", "ä\n\"b\"\n".as_bytes(), r#""ä\n\"b\"\n""#),
        (Format::Text, "text/plain", b"", r#""""#),
        (Format::Text, "text/plain; charset=\"UTF-8\"", b"\xef\xbb\xbfa", r#""a""#),
        (Format::Xml, "text/xml; charset=us-ascii", b"\xef\xbb\xbf<a><b/></a>", r#"{"a":{"b":""}}"#),
    ] {
        assert_eq!(json(format, content_type, body), expected, "{format:?}");
    }
    for (format, content_type, body, says) in [
        (Format::Text, "text/plain; charset=ISO-8859-1", &b"a"[..], "names the charset `ISO-8859-1`, and only UTF-8"),
        (Format::Text, "text/plain", b"ab\xe4", "it is not UTF-8 from byte 2 on"),
        (Format::Text, "text/plain", b"\xff\xfea\0", "it is not UTF-8 from byte 0 on"),
        (Format::Yaml, "text/yaml", b"a: \xe4", "it is not UTF-8"),
        (Format::Yaml, "text/yaml", b"a: 1\na: 2", "not one YAML document: the key `a` stands twice"),
        (Format::Yaml, "text/yaml", b" \n", "not one YAML document: it is blank"),
        (Format::Xml, "text/xml", b"<a>", "not an XML document"),
    ] {
        let error = json(format, content_type, body);
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn keys_are_read_as_written() {
    let read = |text: &str| serde_json::from_str::<ContentTypes>(text).map_err(|error| error.to_string());
    assert_eq!(read("\"any\""), Ok(ContentTypes::Any(AnyContentType::Any)));
    assert_eq!(read("[\"text/plain\"]"), Ok(ContentTypes::Listed(vec!["text/plain".to_owned()])));
    assert!(read("\"text/plain\"").unwrap_err().contains("expected `any`, or a list of content types"));
    for (text, is_one) in [
        ("text/plain", true),
        ("text/*", true),
        ("a/b+c-d.e", true),
        ("*/*", false),
        ("text", false),
        ("text/plain; x=y", false),
    ] {
        assert_eq!(is_content_type(text), is_one, "{text}");
    }
    for (path, is_one) in
        [("a/b", true), ("a/b:c/d", true), ("a", false), ("/a", false), ("a//b", false), ("a/ b", false)]
    {
        assert_eq!(is_path(path), is_one, "{path}");
    }
}
