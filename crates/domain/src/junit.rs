//! Reports in `JUnit` XML, which CI systems read.

use std::fmt::Write as _;

/// The result of a test case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TestResult {
    /// It passed. The text is shown beside it, if it is not empty.
    Passed(String),
    /// It failed: in short, and in full.
    Failed(String, String),
    /// It did not run.
    Skipped,
}

/// A test case.
#[derive(Debug)]
pub struct TestCase {
    /// The group, such as a file.
    pub class: String,
    /// The name within the group.
    pub name: String,
    /// The result.
    pub result: TestResult,
}

/// The report of `cases`, which together are called `suite`.
pub fn write(suite: &str, cases: &[TestCase]) -> String {
    let count = |is_meant: fn(&TestResult) -> bool| cases.iter().filter(|case| is_meant(&case.result)).count();
    let failures = count(|result| matches!(result, TestResult::Failed(..)));
    let skipped = count(|result| *result == TestResult::Skipped);
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"{}\" tests=\"{}\" failures=\"{failures}\" \
         skipped=\"{skipped}\">\n",
        escape(suite),
        cases.len()
    );
    for case in cases {
        let _ = write!(text, "<testcase classname=\"{}\" name=\"{}\">", escape(&case.class), escape(&case.name));
        match &case.result {
            TestResult::Passed(said) if said.is_empty() => {}
            TestResult::Passed(said) => {
                let _ = write!(text, "<system-out>{}</system-out>", escape(said));
            }
            TestResult::Failed(short, whole) => {
                let _ = write!(text, "<failure message=\"{}\">{}</failure>", escape(short), escape(whole));
            }
            TestResult::Skipped => text.push_str("<skipped/>"),
        }
        text.push_str("</testcase>\n");
    }
    text.push_str("</testsuite>\n</testsuites>\n");
    text
}

/// `text` without characters that mean something in XML, or that XML forbids.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}
