//! `WWW-Authenticate`: the authentication that a registry asks for. Source: RFC 9110, section 11.6.1, and the distribution
//! project's token authentication.

use std::collections::HashMap;

/// The authentication that a registry asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Challenge {
    /// User name and password with each request.
    Basic,
    /// A token from the server at `realm`.
    Bearer {
        /// The token server's URL.
        realm: String,
        /// The service that the token is for.
        service: Option<String>,
        /// The rights that the token must have.
        scope: Option<String>,
    },
}

impl Challenge {
    /// Reads one header value. `None` when it asks for nothing known. Several challenges in one value are not split: registries
    /// send one.
    #[must_use]
    pub fn parse(header: &str) -> Option<Self> {
        let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let mut parameters = parameters(rest);
        Some(Self::Bearer {
            realm: parameters.remove("realm")?,
            service: parameters.remove("service"),
            scope: parameters.remove("scope"),
        })
    }
}

/// `a="b, c", d=e` as a map. Names are in lower case.
fn parameters(mut text: &str) -> HashMap<String, String> {
    let mut found = HashMap::new();
    while let Some((name, rest)) = text.split_once('=') {
        let name = name.trim_matches([' ', ',', '\t']).to_ascii_lowercase();
        let (value, rest) = if let Some(quoted) = rest.strip_prefix('"') {
            unquote(quoted)
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            (rest[..end].trim().to_owned(), &rest[end..])
        };
        found.entry(name).or_insert(value);
        text = rest;
    }
    found
}

/// The text up to the closing quote with escapes resolved, and the rest.
fn unquote(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((position, c)) = chars.next() {
        match c {
            '"' => return (value, &text[position + 1..]),
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            _ => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_that_registries_send() {
        let bearer = Challenge::parse(
            r#"Bearer realm="https://auth.example/token",service="registry.example",scope="repository:a/b:pull,push""#,
        );
        assert_eq!(
            bearer,
            Some(Challenge::Bearer {
                realm: "https://auth.example/token".into(),
                service: Some("registry.example".into()),
                scope: Some("repository:a/b:pull,push".into()),
            })
        );
        assert_eq!(Challenge::parse(r#"Basic realm="x""#), Some(Challenge::Basic));
        assert_eq!(Challenge::parse("basic"), Some(Challenge::Basic));
        assert_eq!(
            Challenge::parse(r#"bearer Realm=https://a/t , service="a \"b\"""#),
            Some(Challenge::Bearer { realm: "https://a/t".into(), service: Some("a \"b\"".into()), scope: None })
        );
        for nothing in ["", "Bearer", "Negotiate", r#"Bearer service="x""#, "Bearer realm", r#"Bearer x="unclosed"#] {
            assert_eq!(Challenge::parse(nothing), None, "{nothing}");
        }
    }
}
