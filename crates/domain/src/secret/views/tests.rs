//! A secret is found in each form, and in forms within each other; and other texts stay.

#![expect(clippy::format_collect, reason = "short texts")]

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD},
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::{prelude::*, sample::select};
use url::form_urlencoded::byte_serialize;

use super::*;
use crate::secret::{REDACTED, Secret, Secrets};

fn redact(secret: &str, text: &str) -> String {
    Secrets::from_iter([Secret::from(secret.to_owned())]).redact(text)
}

type Form = (&'static str, fn(&str) -> String);

fn hex(text: &str) -> String {
    base16ct::lower::encode_string(text.as_bytes())
}

fn json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn in_units(text: &str) -> String {
    text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect()
}

fn in_lines(text: &str, width: usize) -> String {
    text.as_bytes().chunks(width).map(|line| str::from_utf8(line).unwrap()).collect::<Vec<_>>().join("\r\n")
}

/// How programs write a text within another one.
const FORMS: [Form; 21] = [
    ("percent", |text| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()),
    ("percent in lower case", |text| {
        utf8_percent_encode(text, NON_ALPHANUMERIC).to_string().replace("%2F", "%2f").replace("%2B", "%2b")
    }),
    ("all percent", |text| text.bytes().map(|byte| format!("%{byte:02x}")).collect()),
    ("form", |text| byte_serialize(text.as_bytes()).collect()),
    ("json", json),
    ("json with slashes", |text| json(text).replace('/', "\\/")),
    ("json in ASCII", |text| {
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_string() } else { in_units(&c.to_string()) }).collect()
    }),
    ("json in units", in_units),
    ("Go's json", |text| {
        json(text).replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026").replace('+', "\\u002b")
    }),
    ("html", |text| {
        text.replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
            .replace('"', "&quot;")
            .replace('\'', "&#39;")
    }),
    ("html in numbers", |text| text.chars().map(|c| format!("&#{};", u32::from(c))).collect()),
    ("html in hexadecimal", |text| {
        text.chars()
            .map(|c| if c.is_alphanumeric() { c.to_string() } else { format!("&#x{:X};", u32::from(c)) })
            .collect()
    }),
    ("Rust", |text| text.escape_debug().to_string()),
    ("C", |text| text.bytes().map(|byte| format!("\\x{byte:02x}")).collect()),
    ("hex", hex),
    ("HEX", |text| hex(text).to_ascii_uppercase()),
    ("base64", |text| STANDARD.encode(text)),
    ("base64 without padding", |text| STANDARD_NO_PAD.encode(text)),
    ("base64 for URLs", |text| URL_SAFE.encode(text)),
    ("base64 for URLs without padding", |text| URL_SAFE_NO_PAD.encode(text)),
    ("base64 in lines", |text| in_lines(&STANDARD.encode(text), 20)),
];

/// The texts around a secret, and around its forms.
const AROUND: [(&str, &str); 9] = [
    ("", ""),
    ("user:", ""),
    ("a", "z"),
    ("ab:", "\n"),
    ("the token '", "' is wrong"),
    ("{\"auth\": \"", "\"}"),
    ("https://example.com/v1/", "/x?a=b"),
    ("x=", "&y=1"),
    ("päß ", " 100%"),
];

#[test]
fn each_form_is_found_in_each_place() {
    for secret in [
        "hunter2",
        "p+a/s?s=1",
        "a<b>&\"c'd\\e",
        "zwölf€𝄞 Boxkämpfer",
        "eyJhbGciOiJIUzI1NiJ9.e30.c2ln",
        "0123456789abcdef",
    ] {
        for (begin, end) in AROUND {
            for (name, form) in FORMS {
                for (before, after) in AROUND {
                    let text = format!("{before}{}{after}", form(&format!("{begin}{secret}{end}")));
                    let redacted = redact(secret, &text);
                    assert!(redacted.contains(REDACTED), "{secret} as {name} stays in {text}");
                    assert!(redacted.starts_with(before) && redacted.ends_with(after), "{text} becomes {redacted}");
                    // The redacted text does not hold it in this form.
                    assert!(!redacted.contains(&form(secret)), "{redacted}");
                }
            }
        }
    }
}

/// A credential that the gateway sends is searched without its scheme, and a password without its user, in all forms too.
#[test]
fn parts_of_a_header_are_found() {
    let pair = STANDARD.encode("ci:hunter/2+");
    for (header, part) in [
        ("Bearer t0ken/+x", "t0ken/+x"),
        (&*format!("Basic {pair}"), "hunter/2+"),
        (&*format!("Basic {pair}"), "ci:hunter/2+"),
    ] {
        for (name, form) in FORMS {
            for (before, after) in AROUND {
                let text = format!("{before}{}{after}", form(&format!("another:{part}")));
                assert!(redact(header, &text).contains(REDACTED), "{part} as {name} stays in {text}");
            }
        }
    }
}

#[test]
fn a_whole_form_is_taken_out_with_its_padding() {
    for (text, expected) in [
        ("x aHVudGVyMg== y", "x [redacted] y"),
        ("x aHVudGVyMgo= y", "x [redacted] y"),
        ("x aHVudGVyMg y", "x [redacted] y"),
        ("Basic dXNlcjpodW50ZXIy", "Basic dXNlcj[redacted]"),
        ("x 68756E74657232 y", "x [redacted] y"),
        ("68:75:6e:74:65:72:32", "[redacted]"),
        ("auth:\n  aHVu\n  dGVy\n  Mg==\n", "auth:\n  [redacted]\n"),
        ("%68unter2 \\u0068unter2 &#104;unter2", "[redacted] [redacted] [redacted]"),
        ("hunte\\u{72}2", "[redacted]"),
    ] {
        assert_eq!(redact("hunter2", text), expected);
    }
}

/// A Secret of Kubernetes with Docker's file of credentials, in JSON in a log line: four forms.
#[test]
fn forms_within_each_other_are_found() {
    let auth = STANDARD.encode("user:p/w+1?2");
    let secret = STANDARD.encode(format!(r#"{{"auths":{{"r.example":{{"auth":"{auth}"}}}}}}"#));
    let text = json(&format!(r#"{{"data":{{".dockerconfigjson":"{secret}"}}}}"#));
    assert!(redact("p/w+1?2", &text).contains(REDACTED));
}

/// Parts of a long text overlap, so that a secret between two parts is found.
#[test]
fn a_long_text_is_looked_through_in_parts() {
    for secret in ["hunter/2", &"long/".repeat(2000)] {
        let encoded = STANDARD.encode(secret);
        for at in [PART - encoded.len(), PART - 7, PART - 1, PART, 2 * PART - 3, secret.len() * GROWTH - 2] {
            let text = format!("{}{encoded}{}", "ä ".repeat(at / 3), " x".repeat(PART));
            assert_eq!(redact(secret, &text), text.replace(&encoded, REDACTED), "{at}");
        }
    }
}

#[test]
fn other_texts_stay() {
    for text in [
        "GET https://example.com/v1/items?page=2&name=%C3%A4%2Fb answered 404 Not Found: &quot;none&quot;",
        "sha256:764e326368aeb62e3f85b1a40246b2ea58ca65a063ebf93f12a5c83f920f090f",
        "100% of C:\\new\\users & more; \\u00 \\x4 \\u{110000} &#x110000; &unknown; %zz \\ud800",
        "",
    ] {
        for secret in ["hunter2", "4-chars", "sixteen letters!"] {
            assert_eq!(redact(secret, text), text);
        }
    }
}

proptest! {
    #[test]
    fn no_form_of_a_form_is_left(
        secret in "\\PC{8,24}",
        within in (0..AROUND.len(), 0..AROUND.len(), 0..AROUND.len()),
        forms in prop::collection::vec(select(&FORMS), 1..=LAYERS),
    ) {
        prop_assume!(secret.trim() == secret);
        let wrap = |text: &str, index: usize| format!("{}{text}{}", AROUND[index].0, AROUND[index].1);
        let mut text = wrap(&secret, within.0);
        for (_, form) in &forms {
            text = wrap(&form(&text), within.1);
        }
        let names: Vec<_> = forms.iter().map(|(name, _)| name).collect();
        let redacted = redact(&secret, &wrap(&text, within.2));
        prop_assert!(redacted.contains(REDACTED), "{secret} stays in {redacted} as {names:?}");
    }

    #[test]
    fn any_text_is_looked_through(text in "(\\PC|[%&;\\\\xu0-9a-f{}#=\n]){0,80}", secret in "[G-Z]{12}") {
        let stays = redact(&secret, &text) == text;
        prop_assert!(stays || text.contains(&secret));
    }
}
