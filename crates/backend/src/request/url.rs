//! The URL of a request. It goes only to hosts that the configuration names, and no value can leave the configured path.

mod allowed_host;
mod path;

use reqwest::Url;

use self::{
    allowed_host::{AllowedHost, is_name},
    path::{check, is_folder},
};
use domain::{
    problem::{Path, Problems},
    secret::literal,
};
use lang::{
    evaluator::{Context, EvaluationError},
    scope::NameScope,
    template::{Template, ValueContext},
};
use outbound::names_user;

/// The template of a URL, with the allowed hosts if a value is part of the host.
#[derive(Debug)]
pub(super) struct UrlTemplate {
    template: Template,
    allowed: Option<Vec<AllowedHost>>,
    /// The URL before the `?`, and its length in the template. `None` if a value is part of it.
    before_query: Option<(Url, usize)>,
    /// Whether the path may end with a `/`.
    is_folder: bool,
}

impl UrlTemplate {
    /// Parses `source`. The scheme must be literal, and so must the host unless `allowed` names hosts.
    pub(super) fn build(
        source: &str,
        allowed: &[String],
        scope: &NameScope,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<Self> {
        let at = path.key("allowedHosts");
        let entries = allowed.iter().enumerate();
        let hosts: Vec<_> =
            entries.filter_map(|(index, entry)| problems.note(&at.index(index), AllowedHost::parse(entry))).collect();
        let path = &path.key("url");
        let template = Template::build(source, ValueContext::Url, scope, path, problems)?;
        literal::check_url(source, path, problems);
        let is_folder = is_folder(source);
        if let Some(url) = fixed_host(&template) {
            if !allowed.is_empty() {
                problems.warning(&at, "never looked at: the URL's host is fixed", "leave it out");
            }
            if names_user(&url) {
                let help = "send it as a header: `Authorization: { file: … }`";
                problems.error_with_help(path, "the URL holds a user or a password", help);
            }
            let before_query = before_query(&template, is_folder);
            return Some(Self { template, allowed: None, before_query, is_folder });
        }
        let prefix = template.fixed_prefix();
        let has_scheme = prefix.starts_with("https://") || prefix.starts_with("http://");
        if !has_scheme || prefix.contains('@') {
            problems.error_with_help(
                path,
                "the URL must begin with `http://` or `https://` and a host, before any `{{`",
                "the host is decided here; a parameter may be part of it where `allowedHosts` names those that may be",
            );
            return None;
        }
        if allowed.is_empty() {
            problems.error_with_help(
                path,
                "a parameter is part of the host, or could be, and no `allowedHosts` says which may be called",
                "end the host with a `/` before the first `{{`, or name hosts: `allowedHosts: [\"*.clusters.example.com\"]`",
            );
            return None;
        }
        Some(Self { template, allowed: Some(hosts), before_query: None, is_folder })
    }

    /// The template as written.
    pub(super) fn source(&self) -> &str {
        self.template.source()
    }

    /// The beginning of the URL; `None` if a value can change the host.
    pub(super) fn fixed_destination(&self) -> Option<Url> {
        fixed_host(&self.template)
    }

    /// The URL with the values of `context`.
    ///
    /// # Errors
    /// When a value is missing, leaves the path, or makes a host that is not allowed.
    pub(super) async fn render(&self, context: &Context) -> Result<Url, EvaluationError> {
        let text = context.render(&self.template).await?;
        if let Some((url, length)) = &self.before_query
            && let Some(query) = text.get(length + 1..).filter(|query| is_plain(query))
        {
            let mut url = url.clone();
            url.set_query(Some(query));
            return Ok(url);
        }
        check(&text, self.is_folder).map_err(|error| error.to_string())?;
        let url = Url::parse(&text).map_err(|error| error.to_string())?;
        let Some(allowed) = &self.allowed else { return Ok(url) };
        if names_user(&url) {
            return Err("a value made it name a user or a password".to_owned().into());
        }
        if !is_name(&url) {
            return Err(
                format!("a value made the host `{}`, which no name is", url.host_str().unwrap_or_default()).into()
            );
        }
        if !allowed.iter().any(|entry| entry.matches(&url)) {
            let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
            let host = url.host_str().unwrap_or_default();
            return Err(format!("the host `{host}{port}` is in no entry of `allowedHosts`").into());
        }
        Ok(url)
    }

    /// Whether it uses the top-level name `top`.
    pub(super) fn reads(&self, top: &str) -> bool {
        self.template.reads(top)
    }
}

/// The literal beginning of the URL, with its host; `None` if a parameter can change the host.
fn fixed_host(template: &Template) -> Option<Url> {
    let (prefix, source) = (template.fixed_prefix(), template.source());
    let is_whole = prefix.len() == source.len();
    let authority = prefix.split_once("://").map(|(_, rest)| rest);
    if !is_whole && !authority.is_some_and(|rest| rest.contains(['/', '?'])) {
        return None;
    }
    let url = Url::parse(if is_whole { source } else { prefix.trim_end_matches(|c| c != '/' && c != '?') }).ok()?;
    (matches!(url.scheme(), "http" | "https") && url.has_host()).then_some(url)
}

/// The URL before the `?` of `template`, and its length in `template`. `None` if a value is part of it.
fn before_query(template: &Template, is_folder: bool) -> Option<(Url, usize)> {
    let (before, _) = template.fixed_prefix().split_once('?')?;
    // Parsed by itself, the beginning would lose blanks at its end, which the whole URL keeps before the query.
    if before.contains(|c: char| c == '#' || c <= ' ') {
        return None;
    }
    check(before, is_folder).ok()?;
    Some((Url::parse(before).ok()?, before.len()))
}

/// Whether `query` holds only characters that every URL parser leaves unchanged.
fn is_plain(query: &str) -> bool {
    query.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%=&+,:/".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    fn build(url: &str, allowed: &[&str]) -> (Option<UrlTemplate>, Vec<String>) {
        let mut problems = Problems::default();
        let allowed: Vec<String> = allowed.iter().map(|host| (*host).to_owned()).collect();
        let built = UrlTemplate::build(url, &allowed, &NameScope::input(), &Path::root(), &mut problems);
        (built, problems.into_vec().into_iter().map(|problem| problem.message).collect())
    }

    #[test]
    fn the_host_stands_in_the_configuration() {
        for good in [
            "https://h.example",
            "http://127.0.0.1:8080/v1?env={{ params.env }}",
            "https://h.example/{{ params.a }}/b",
            "https://h.example?x={{ params.a }}",
        ] {
            assert!(build(good, &[]).1.is_empty(), "{good}");
        }
        for bad in [
            "https://{{ params.host }}/",
            "https://h.example{{ params.a }}/",
            "https://h.example:{{ params.port }}/",
            "{{ params.url }}",
            "ftp://h.example/",
            "h.example/x",
            "https://u:p@h.example/x",
        ] {
            assert!(!build(bad, &[]).1.is_empty(), "{bad}");
        }
        for bad in ["{{ params.url }}", "ftp://{{ params.host }}/", "https://u:p@{{ params.host }}/"] {
            assert!(build(bad, &["*.example.com"]).0.is_none(), "{bad}");
        }
        assert!(build("https://h.example/{{ params.a }}", &["h.example"]).1[0].contains("never looked at"));
        for bad in [
            "*",
            "*.*.example",
            "a*.example",
            "https://h.example",
            "h.example/x",
            "u@h.example",
            "*.10.0.0.1",
            "",
            "h:x",
        ] {
            assert!(build("https://{{ params.h }}/", &[bad]).1.iter().any(|says| says.contains("is neither")), "{bad}");
        }
    }

    #[test]
    fn a_value_leads_to_allowed_hosts_only() {
        let allowed =
            ["*.clusters.example.com", "exact.example.com", "10.0.0.1:8080", "*.ports.example.com:8443", "[::1]"];
        let ask = |source: &str, value: &str| {
            let (template, problems) = build(source, &allowed);
            assert!(problems.is_empty(), "{problems:?}");
            let context = Context::here(minijinja::context! { params => minijinja::context! { h => value } });
            let url = template.unwrap().render(&context).now_or_never().unwrap();
            url.map(String::from).map_err(|error| error.to_string())
        };
        for (value, url) in [
            ("a.clusters.example.com", "https://a.clusters.example.com/v1"),
            ("a.b.clusters.example.com", "https://a.b.clusters.example.com/v1"),
            ("EXACT.example.com", "https://exact.example.com/v1"),
        ] {
            assert_eq!(ask("https://{{ params.h }}/v1", value).unwrap(), url);
        }
        assert_eq!(
            ask("https://{{ params.h }}.clusters.example.com/v1", "a").unwrap(),
            "https://a.clusters.example.com/v1"
        );
        assert_eq!(ask("http://{{ params.h }}:8080/", "10.0.0.1").unwrap(), "http://10.0.0.1:8080/");
        assert_eq!(ask("http://{{ params.h }}:8080/", "0xa000001").unwrap(), "http://10.0.0.1:8080/");
        assert_eq!(
            ask("https://{{ params.h }}:8443/", "x.ports.example.com").unwrap(),
            "https://x.ports.example.com:8443/"
        );
        for value in [
            "",
            "evil.example",
            "clusters.example.com",
            ".clusters.example.com.evil.example",
            "evilclusters.example.com",
            "a.clusters.example.com.",
            "evil.example/.clusters.example.com",
            "evil.example#.clusters.example.com",
            "evil.example?.clusters.example.com",
            "evil.example\\.clusters.example.com",
            "u@a.clusters.example.com",
            "u:p@evil.example",
            "a.clusters.example.com:8443",
            "a.clusters.example.com:80@evil.example",
            "x\r\nHost: evil.example",
            "a%2eclusters.example.com",
            "10.0.0.1",
            "127.0.0.1",
            "[::1]",
            "localhost",
            "169.254.169.254",
            "2852039166",
            "x.ports.example.com",
            "..",
            "`id`.clusters.example.com",
            "$(id).clusters.example.com",
        ] {
            assert!(
                ask("https://{{ params.h }}/v1", value).is_err(),
                "{value}: {:?}",
                ask("https://{{ params.h }}/v1", value)
            );
        }
        assert_eq!(
            ask("https://{{ params.h }}/v1", "evil.example").unwrap_err(),
            "the host `evil.example` is in no entry of `allowedHosts`"
        );
    }

    #[test]
    fn a_query_is_read_as_any_other_text() {
        for source in ["https://h.example/v1/?x={{ params.v }}", "http://h?{{ params.v }}&a=b", "https://h/a%2Fb?y"] {
            let template = build(source, &[]).0.unwrap();
            assert!(template.before_query.is_some(), "{source}");
            for value in ["", "x", "a/b c", "#f", "?", "%41", "ü", "a\tb", "'", "../.."] {
                let context = Context::here(minijinja::context! { params => minijinja::context! { v => value } });
                let whole = Url::parse(&template.template.render(context.values()).unwrap());
                assert_eq!(template.render(&context).now_or_never().unwrap().ok(), whole.ok(), "{source}: {value}");
            }
        }
        for source in [
            "https://h/x ?x={{ params.v }}",
            "https://h/{{ params.v }}?x=y",
            "https://h/#?{{ params.v }}",
            "https://h/v1//a?x={{ params.v }}",
        ] {
            assert!(build(source, &[]).0.unwrap().before_query.is_none(), "{source}");
        }
    }

    #[test]
    fn an_empty_value_is_no_last_segment() {
        for (source, says) in [
            ("https://h/v1/{{ params.v }}", false),
            ("https://h/{{ params.v }}?x=/", false),
            ("https://h/v1/{{ params.v | replace('/', '-') }}#/", false),
            ("https://h/v1/?x={{ params.v }}", true),
            ("https://h/v1/{% if params.v %}{{ params.v }}{% endif %}", true),
            ("https://h?x={{ params.v }}", true),
            ("https://h/", true),
            ("https://h/v1/a{{ params.v }}", true),
        ] {
            let template = build(source, &[]).0.unwrap();
            let empty = Context::here(minijinja::context! { params => minijinja::context! { v => "" } });
            assert_eq!(template.render(&empty).now_or_never().unwrap().is_ok(), says, "{source}");
            let full = Context::here(minijinja::context! { params => minijinja::context! { v => "x" } });
            assert!(template.render(&full).now_or_never().unwrap().is_ok(), "{source}");
        }
    }
}
