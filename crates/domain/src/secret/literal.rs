//! Finds secrets that are written in a configuration, where references belong. A guess, so it only warns.

use crate::problem::{Path, Problems};

/// How names of secrets end, in lower case and without `-` and `_`.
const NAMES: [&str; 12] = [
    "accesskey",
    "apikey",
    "authorization",
    "bearer",
    "cookie",
    "credential",
    "credentials",
    "passwd",
    "password",
    "privatekey",
    "secret",
    "token",
];
/// Names of the signatures that make a URL a secret, written the same way.
const SIGNATURES: [&str; 2] = ["sig", "signature"];
/// How secrets of well-known services begin.
const BEGINNINGS: [&str; 19] = [
    "-----BEGIN",
    "AIza",
    "AKIA",
    "ASIA",
    "Basic ",
    "Bearer ",
    "dckr_pat_",
    "eyJ",
    "gho_",
    "ghp_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "hvs.",
    "npm_",
    "token ",
    "xoxb-",
    "xoxp-",
];
/// The shortest secret that is recognised by its beginning, in bytes.
const SHORTEST: usize = 12;

/// Warns if `value`, which stands under `name` at `path`, may be a secret. A reference may stand there too.
pub fn check(name: &str, value: &str, path: &Path, problems: &mut Problems) {
    if seems_secret(name, value) {
        problems.literal_secret(
            path,
            format!("`{name}` seems to hold a secret, which every reader of this file can see"),
            "write a reference to a file with the whole value, or to a variable: `{ file: … }` or `{ env: … }`",
        );
    }
}

/// Warns if `value`, which a request sends under `name` in its body, may be a secret.
pub fn check_sent(name: &str, value: &str, path: &Path, problems: &mut Problems) {
    if seems_secret(name, value) {
        problems.literal_secret(
            path,
            format!("`{name}` in the body seems to hold a secret, which every reader of this file can see"),
            "send it as a header, from a file: `headers: { Authorization: { file: … } }`",
        );
    }
}

/// Warns if the default of the parameter `name` may be a secret.
pub fn check_default(name: &str, value: &str, path: &Path, problems: &mut Problems) {
    if seems_secret(name, value) {
        problems.literal_secret(
            path,
            format!("the default of `{name}` seems to be a secret, which every reader of this file can see"),
            "leave the parameter out; let the backend read the secret: `{ file: … }` or `{ env: … }` in its `headers` or `env`",
        );
    }
}

/// Warns if `value`, which answers hold under `name`, may be a secret.
pub fn check_answered(name: &str, value: &str, path: &Path, problems: &mut Problems) {
    // In Kubernetes, a `secret` is most often the name of one.
    let names_one = ["secret", "credential", "credentials"].iter().any(|end| plain(name).ends_with(end));
    if seems_secret(if names_one { "" } else { name }, value) {
        problems.literal_secret(
            path,
            format!("`{name}` seems to hold a secret, which Argo CD shows in each Application"),
            "leave it out, and let the Application read a Secret in its cluster",
        );
    }
}

/// Warns of the words of a command that may be secrets.
pub fn check_words(words: &[String], path: &Path, problems: &mut Problems) {
    let mut before = "";
    for (index, word) in words.iter().enumerate() {
        let (option, value) = match word.split_once('=') {
            Some((name, value)) if !name.contains(char::is_whitespace) => (name, value),
            _ => (before, word.as_str()),
        };
        let name = if option == before && !before.starts_with('-') { "" } else { option };
        // A path, a variable of a shell, or the next option.
        let is_other = value.starts_with(['/', '.', '$', '-', '<']);
        if has_secret_form(word) || has_query_secret(word).is_some() || !is_other && is_secret(name, value) {
            problems.literal_secret(
                &path.index(index),
                "the argument seems to hold a secret, which each process on the machine can see",
                "pass it as a variable: `env: { TOKEN: { file: … } }`",
            );
        }
        before = word;
    }
}

/// Warns if the query of `url`, which stands at `path`, may hold a secret.
pub fn check_url(url: &str, path: &Path, problems: &mut Problems) {
    if let Some(name) = has_query_secret(url) {
        problems.literal_secret(
            path,
            format!("`{name}` in the URL seems to hold a secret, which proxies and servers write to their logs"),
            "send it as a header, from a file: `headers: { Authorization: { file: … } }`",
        );
    }
}

/// The name in the query of a URL in `text` whose value seems to be a secret.
fn has_query_secret(text: &str) -> Option<&str> {
    let (_, query) = text.split_once('?')?;
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (name, _) = pairs.find(|(name, value)| {
        let is_signature = SIGNATURES.iter().any(|end| plain(name) == *end || name.ends_with("-Signature"));
        !value.starts_with('$') && (is_secret(name, value) || is_signature && !is_setting(value))
    })?;
    Some(name)
}

/// Whether `value`, which stands under `name` in the configuration, seems to be a secret or to hold one.
fn seems_secret(name: &str, value: &str) -> bool {
    is_secret(name, value) || has_secret_form(value) || value.contains("://") && has_query_secret(value).is_some()
}

/// Whether a part of `text` has the form of a secret: that of a well-known service, or a URL with a password.
fn has_secret_form(text: &str) -> bool {
    let is_given = |text: &str| !text.is_empty() && !text.starts_with(['$', '{', '<', '*']);
    let mut words = text.split(|c: char| c.is_whitespace() || "=\"',;@/:".contains(c)).filter(|word| !word.is_empty());
    let mut scheme = false;
    let is_known = words.any(|word| {
        let is_after_scheme = std::mem::replace(&mut scheme, matches!(word, "Bearer" | "Basic"));
        is_given(word) && word.len() >= SHORTEST && (is_after_scheme || begins_as_secret(word))
    });
    let has_password = text.split("://").skip(1).any(|rest| {
        let host = rest.split(|c: char| c.is_whitespace() || "/\"'?".contains(c)).next().unwrap_or_default();
        let user = host.rsplit_once('@').map(|(user, _)| user).unwrap_or_default();
        user.split_once(':').is_some_and(|(_, password)| is_given(password))
    });
    is_known || has_password
}

/// Whether `word` begins as a secret of a well-known service.
fn begins_as_secret(word: &str) -> bool {
    // npm has variables that begin as its tokens do.
    let is_variable = word.starts_with("npm_config") || word.starts_with("npm_package");
    let is_aws = |word: &str| word.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    match word.get(..4) {
        Some("AKIA" | "ASIA") => is_aws(word),
        _ => !is_variable && BEGINNINGS.iter().any(|begin| word.starts_with(begin)),
    }
}

/// `name` in lower case, with only its letters and digits.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// Whether `value` is not a secret, under any name. A template gets its value from the call; a number or a boolean is a setting.
fn is_setting(value: &str) -> bool {
    let is_number = value.parse::<f64>().is_ok();
    value.trim().is_empty() || value.contains("{{") || is_number || matches!(value, "true" | "false")
}

/// Whether `value`, which stands under `name`, seems to be a secret.
pub(crate) fn is_secret(name: &str, value: &str) -> bool {
    if is_setting(value) {
        return false;
    }
    let name = plain(name);
    let is_named = NAMES.iter().any(|end| name.ends_with(end));
    is_named || value.len() >= SHORTEST && begins_as_secret(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_by_their_name_or_their_form() {
        for (name, value, expected) in [
            ("Authorization", "Bearer abc", true),
            ("GITHUB_TOKEN", "hunter2", true),
            ("X-Api-Key", "hunter2", true),
            ("private_token", "hunter2", true),
            ("GH", "ghp_0123456789abcdef", true),
            ("KEY", "-----BEGIN PRIVATE KEY-----", true),
            ("TOKEN_FILE", "/run/token", false),
            ("TOKEN", "", false),
            ("Authorization", "Bearer {{ params.token }}", false),
            ("USE_TOKEN", "true", false),
            ("TOKEN", "1", false),
            ("REGION", "eu", false),
            ("X", "token of", false),
        ] {
            assert_eq!(is_secret(name, value), expected, "{name}: {value}");
        }
    }

    #[test]
    fn secrets_are_found_within_texts() {
        for (name, value, expected) in [
            ("DATABASE_URL", "postgres://u:hunter2@db.example.com/x", true),
            ("DATABASE_URL", "postgres://u@db.example.com/x", false),
            ("DATABASE_URL", "postgres://u:$PASSWORD@db.example.com/x", false),
            ("header", "Authorization: Bearer hunter2hunter2", true),
            ("text", "the Bearer of it", false),
            ("code", "curl https://h/?key=AIzaSyHunter2Hunter2", true),
            ("link", "https://h/x?sv=1&sig=hunter2", true),
            ("link", "https://h/x?sig={{ params.sig }}", false),
            ("REGION", "ASIA-PACIFIC-SOUTH", false),
            ("KEY", "AKIAIOSFODNN7EXAMPLE", true),
            ("x", "npm_config_registry", false),
            ("x", "ä€ä€ä€ä€ä€", false),
            ("url", "https://h.example.com:8080/a@b", false),
        ] {
            assert_eq!(seems_secret(name, value), expected, "{name}: {value}");
        }
    }

    #[test]
    fn secrets_are_found_in_commands() {
        let found = |words: &[&str]| {
            let (mut problems, words) = (Problems::default(), words.iter().map(|word| (*word).to_owned()));
            check_words(&words.collect::<Vec<_>>(), &Path::root(), &mut problems);
            problems.into_vec().iter().map(|problem| problem.path.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(found(&["curl", "-H", "Authorization: Bearer ghp_hunter2hunter2"]), ["[2]"]);
        assert_eq!(found(&["a", "--token", "hunter2", "--password=hunter2"]), ["[2]", "[3]"]);
        assert_eq!(found(&["env", "TOKEN=hunter2", "x"]), ["[1]"]);
        assert_eq!(found(&["sh", "-c", "curl -u me:$PASSWORD https://h/?token=$TOKEN"]), [""; 0]);
        assert_eq!(
            found(&["a", "--token-file", "x", "--token=/run/token", "--token", "$TOKEN", "token", "x"]),
            [""; 0]
        );
    }

    #[test]
    fn answers_may_name_a_secret() {
        let found = |name: &str, value: &str| {
            let mut problems = Problems::default();
            check_answered(name, value, &Path::root(), &mut problems);
            !problems.into_vec().is_empty()
        };
        assert!(found("token", "hunter2") && found("x", "ghp_hunter2hunter2") && found("secret", "ghp_hunter2hunter2"));
        assert!(!found("secret", "my-secret") && !found("token", "{{ name }}"));
    }

    #[test]
    fn a_message_does_not_repeat_a_secret() {
        let (mut problems, root) = (Problems::default(), Path::root());
        check("TOKEN", "hunter2", &root, &mut problems);
        check_url("https://h/x?page=1&access_token=hunter2", &root, &mut problems);
        check_url("https://h/x?access_token={{ params.x }}", &root, &mut problems);
        let problems = problems.into_vec();
        assert_eq!(problems.len(), 2);
        assert!(problems.iter().all(|problem| !format!("{problem:?}").contains("hunter2")));
    }
}
