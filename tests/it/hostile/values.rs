//! Branch names of an attacker.

use serde_json::{Map, Value};

/// Values for each language, syntax and path that a name reaches.
const SHORT: &[&str] = &[
    // Paths
    "../../x",
    "..",
    ".",
    "/",
    "a/b",
    "/etc/passwd",
    "..\\..\\x",
    "~root",
    "//evil.example/x",
    // Encoded once and twice
    "a%2fb",
    "..%2f..%2fx",
    "%2e%2e%2fx",
    "%252e%252e%252fx",
    "%00",
    "%",
    "%zz",
    "%0d%0aX-Pwned:1",
    "a+b",
    // URLs
    "@evil.example",
    "a@evil.example:80",
    "http://evil.example/",
    "file:///etc/passwd",
    "#",
    "?a=b",
    "?a=b&c=d#e",
    "x;y=z",
    ":1",
    // Shells
    "$(id)",
    "`id`",
    "; id",
    "| id",
    "&& id",
    "> seen",
    "$PATH",
    "${PATH}",
    "$((7*7))",
    "'; id; '",
    "\"; id; \"",
    "*",
    "{a,b}",
    "!!",
    "\\n",
    "() { :; }; id",
    // Options of programs
    "-rf",
    "--help",
    "--",
    "-",
    "@file",
    // Templates
    "{{ 7*7 }}",
    "{{ params }}",
    "{{",
    "{% for x in y %}",
    "{# x #}",
    "${x}",
    "#{7*7}",
    "<%= 7*7 %>",
    "${{ github.token }}",
    "{{`x`}}",
    // CEL
    "' + params.v1 + '",
    "true || true",
    "params",
    "items.size()",
    // YAML
    "- a: b",
    "a: b",
    "*x",
    "&x",
    "!!python/object:os.system",
    "---",
    "...",
    "null",
    "~",
    "true",
    "no",
    "1e9",
    "0x10",
    "010",
    "1.10",
    "a: |\n  b",
    "# x",
    "<<: *x",
    "[",
    "{",
    "\"",
    "'",
    ">-",
    "2026-01-01",
    // JSON
    "\"}]},\"output\":{\"parameters\":[]",
    "\\u0000",
    "\\",
    "],[",
    "\",\"a\":\"",
    // HTTP
    "x\r\nX-Pwned: 1",
    "x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n{}",
    "x\ny",
    "x\ry",
    "x\ty",
    " x ",
    "x,y",
    "x\u{b}y",
    // Terminals and readers
    "\u{1b}[31mx",
    "\u{1b}]0;x\u{7}",
    "\u{7f}",
    "\u{9b}31m",
    "\u{202e}gpj.exe",
    "\u{2028}",
    "\u{feff}x",
    "\u{200b}",
    "\u{85}",
    // Unicode
    "ä🚀",
    "🏳️‍🌈",
    "e\u{301}",
    "İ",
    "ﬁ",
    "\u{fffd}",
    "\u{10ffff}",
    // Image references
    "a:b",
    "a@sha256:0",
    "X",
    // Other languages
    "<script>alert(1)</script>",
    "' OR 1=1 --",
    "<!--",
    "%s%n",
    "=cmd()",
];

/// All values, with long ones.
pub(super) fn values() -> Vec<String> {
    let long = ["x".repeat(10_000), "../".repeat(3_000), "🚀".repeat(2_500), "(".repeat(5_000), "{{".repeat(5_000)];
    SHORT.iter().map(ToString::to_string).chain(long).collect()
}

/// A value that no environment variable and no header can hold.
pub(super) const NUL: &str = "x\0y";

/// The parameters `v0`, `v1` … with all these values.
pub(super) fn parameters() -> Map<String, Value> {
    values().into_iter().enumerate().map(|(index, value)| (format!("v{index}"), value.into())).collect()
}

/// Maps each parameter name to `of(name)`.
pub(super) fn each(of: impl Fn(&str) -> String) -> Map<String, Value> {
    parameters().keys().map(|name| (name.clone(), of(name).into())).collect()
}
