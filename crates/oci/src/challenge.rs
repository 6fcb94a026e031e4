//! `WWW-Authenticate`: the authentication that a registry demands. Source: RFC 9110, sections 11.2 to 11.6.1, and the
//! distribution project's token authentication.

use std::collections::HashMap;

/// The authentication that a registry demands.
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
    /// Reads the value of one header, which may hold several challenges. Unknown ones are left out, and so is the text after a
    /// mistake, such as a quote that is not closed.
    #[must_use]
    pub fn read(header: &str) -> Vec<Self> {
        let (mut found, mut rest) = (Vec::new(), header);
        loop {
            rest = skip(rest).0;
            let (scheme, after) = token(rest);
            if scheme.is_empty() {
                return found;
            }
            let Some((parameters, after)) = parameters(after) else { return found };
            found.extend(Self::of(scheme, parameters));
            rest = after;
        }
    }

    /// The challenges in the order in which they should be answered: anybody may get a token, but a password must be configured.
    #[must_use]
    pub(super) fn best_first(mut all: Vec<Self>) -> Vec<Self> {
        all.sort_by_key(|challenge| matches!(challenge, Self::Basic));
        all.dedup();
        all
    }

    fn of(scheme: &str, mut parameters: HashMap<String, String>) -> Option<Self> {
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        Some(Self::Bearer {
            realm: parameters.remove("realm")?,
            service: parameters.remove("service"),
            scope: parameters.remove("scope"),
        })
    }
}

const SPACE: [char; 2] = [' ', '\t'];

/// The rest after white space and commas, and whether there was a comma.
fn skip(text: &str) -> (&str, bool) {
    let rest = text.trim_start_matches([' ', '\t', ',']);
    (rest, text[..text.len() - rest.len()].contains(','))
}

/// The token at the start of `text` (RFC 9110, section 5.6.2), which may be empty, and the rest.
fn token(text: &str) -> (&str, &str) {
    let is_of_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    text.split_at(text.find(|c| !is_of_token(c)).unwrap_or(text.len()))
}

/// The parameters at the start of `text`, with names in lower case, and the rest: the next challenge. `None` if a quoted text is not
/// closed. A `token68` is skipped: nobody here reads one.
fn parameters(text: &str) -> Option<(HashMap<String, String>, &str)> {
    let mut found = HashMap::new();
    let mut rest = text;
    if let Some(after) = after_token68(text) {
        return Some((found, after));
    }
    loop {
        let (start, _) = skip(rest);
        let (name, after) = token(start);
        let value = after.trim_start_matches(SPACE).strip_prefix('=');
        let (false, Some(value)) = (name.is_empty(), value) else {
            // A name without a value is the scheme of the next challenge.
            return Some((found, rest));
        };
        let value = value.trim_start_matches(SPACE);
        let (value, after) = if let Some(quoted) = value.strip_prefix('"') {
            unquote(quoted)?
        } else {
            // Some servers write a URL without quotes.
            let end = value.find([' ', '\t', ',']).unwrap_or(value.len());
            (value[..end].to_owned(), &value[end..])
        };
        found.entry(name.to_ascii_lowercase()).or_insert(value);
        rest = after;
    }
}

/// The rest after the `token68` that is all of a challenge, if there is one (RFC 9110, section 11.2).
fn after_token68(text: &str) -> Option<&str> {
    let start = text.strip_prefix(SPACE)?.trim_start_matches(SPACE);
    let is_of_token68 = |c: char| c.is_ascii_alphanumeric() || "-._~+/".contains(c);
    let after = start.trim_start_matches(is_of_token68);
    let end = after.trim_start_matches('=').trim_start_matches(SPACE);
    (after.len() < start.len() && (end.is_empty() || end.starts_with(','))).then_some(end)
}

/// The text up to the closing quote with escapes resolved, and the rest. `None` if it is not closed.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((position, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[position + 1..])),
            '\\' => value.push(chars.next()?.1),
            _ => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>) -> Challenge {
        let [service, scope] = [service, scope].map(|part| part.map(str::to_owned));
        Challenge::Bearer { realm: realm.to_owned(), service, scope }
    }

    #[test]
    fn the_forms_that_registries_send() {
        let one = bearer("https://auth.example/token", Some("registry.example"), Some("repository:a/b:pull,push"));
        for (header, expected) in [
            (
                r#"Bearer realm="https://auth.example/token",service="registry.example",scope="repository:a/b:pull,push""#,
                vec![one],
            ),
            (r#"Basic realm="x""#, vec![Challenge::Basic]),
            ("basic", vec![Challenge::Basic]),
            (r#"bearer Realm=https://a/t , service="a \"b\"""#, vec![bearer("https://a/t", Some("a \"b\""), None)]),
            (
                r#"Basic realm="a, Bearer b", Bearer realm="https://a/t""#,
                vec![Challenge::Basic, bearer("https://a/t", None, None)],
            ),
            (r#"Bearer realm = "https://a/t" ,	service	=	s"#, vec![bearer("https://a/t", Some("s"), None)]),
            (r#"Negotiate, Basic realm="x", Digest qop="auth, auth-int", nonce="=""#, vec![Challenge::Basic]),
            (r#"Negotiate oYH/+==, Bearer realm="u""#, vec![bearer("u", None, None)]),
            (r#", ,Basic , ,Bearer realm="u","#, vec![Challenge::Basic, bearer("u", None, None)]),
            (r#"Bearer realm="u" service="s""#, vec![bearer("u", Some("s"), None)]),
            (r#"Bearer realm="u",realm="v""#, vec![bearer("u", None, None)]),
            (r#"Basic realm="é", Bearer realm="u""#, vec![Challenge::Basic, bearer("u", None, None)]),
            (r#"Basic realm="x", Bearer realm="unclosed"#, vec![Challenge::Basic]),
        ] {
            assert_eq!(Challenge::read(header), expected, "{header}");
        }
        for nothing in [
            "",
            ",",
            "Bearer",
            "Negotiate",
            r#"Bearer service="x""#,
            "Bearer realm",
            r#"Bearer x="unclosed"#,
            "é=\"Basic",
        ] {
            assert_eq!(Challenge::read(nothing), [], "{nothing}");
        }
    }

    #[test]
    fn a_token_is_tried_before_a_password() {
        let all = Challenge::read(r#"Basic realm="x", Bearer realm="a", Basic realm="y", Bearer realm="b""#);
        let expected = [bearer("a", None, None), bearer("b", None, None), Challenge::Basic];
        assert_eq!(Challenge::best_first(all), expected);
    }

    /// A challenge, and how a server may write it.
    fn any_challenge() -> impl Strategy<Value = (Option<Challenge>, String)> {
        let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        let space = "[ \t]{0,2}";
        prop_oneof![
            ("[bB]asi[cC]", "[ -~]{0,12}", space).prop_map(move |(scheme, realm, space)| {
                (Some(Challenge::Basic), format!("{scheme} realm{space}={space}{}", quoted(&realm)))
            }),
            ("[bB]eare[rR]", "[ -~é]{0,12}", proptest::option::of("[ -~]{0,12}"), space, "[ \t]{0,1},[ \t]{0,1}")
                .prop_map(move |(scheme, realm, service, space, comma)| {
                    let more =
                        service.as_deref().map(|service| format!("{comma}service{space}={space}{}", quoted(service)));
                    let written =
                        format!("{scheme} realm{space}={space}{}{}", quoted(&realm), more.unwrap_or_default());
                    (Some(bearer(&realm, service.as_deref(), None)), written)
                }),
            "Negotiate( [A-Za-z0-9._~+/-]{1,8}={0,2})?".prop_map(|written| (None, written)),
            ("Digest", "[ -~]{0,12}")
                .prop_map(move |(scheme, nonce)| (None, format!("{scheme} nonce={}", quoted(&nonce)))),
        ]
    }

    proptest! {
        #[test]
        fn all_challenges_of_a_line_are_read(
            all in proptest::collection::vec(any_challenge(), 0..5),
            comma in "[ \t]{0,2},[ ,\t]{0,3}",
        ) {
            let line: Vec<&str> = all.iter().map(|(_, written)| written.as_str()).collect();
            let line = line.join(&comma);
            let expected: Vec<Challenge> = all.iter().filter_map(|(challenge, _)| challenge.clone()).collect();
            prop_assert_eq!(Challenge::read(&line), expected, "{}", line);
        }

        #[test]
        fn any_text_ends(text in "[ -~]{0,60}") {
            let _ = Challenge::read(&text);
        }
    }
}
