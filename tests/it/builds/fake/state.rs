//! How the fake registry and CI answer.

use super::*;

impl State {
    pub(super) fn keep(&mut self, content: String) -> Digest {
        let digest = Digest::of(content.as_bytes());
        self.contents.insert(digest.as_str().to_owned(), content);
        digest
    }

    pub(super) fn answer(&self, request: &Request) -> Vec<Step> {
        let target = &*request.target;
        if let Some((endpoint, play)) = &self.fault
            && *endpoint == Endpoint::of(target)
        {
            return play(request);
        }
        if let Some((_, commit)) = target.split_once("/actions/runs?head_sha=") {
            let is_of = |run: &&Value| commit.starts_with(run["head_sha"].as_str().unwrap());
            let runs: Vec<&Value> = self.runs.iter().filter(is_of).collect();
            let list = json!({"total_count": runs.len(), "workflow_runs": runs}).to_string();
            return request.answer(200, "Content-Type: application/json", list);
        }
        if let Some((_, from)) = target.split_once("/commits?sha=") {
            let since = self.history.iter().skip_while(|commit| !from.starts_with(&sha(**commit)));
            let since: Vec<char> = since.copied().collect();
            let commit = |(index, digit): (usize, &char)| {
                let parents: Vec<Value> =
                    since.get(index + 1).map(|parent| json!({"sha": sha(*parent)})).into_iter().collect();
                json!({"sha": sha(*digit), "parents": parents})
            };
            let page_size: usize = from.split_once("per_page=").unwrap().1.parse().unwrap();
            let list: Vec<Value> = since.iter().enumerate().map(commit).take(page_size).collect();
            return request.answer(200, "Content-Type: application/json", json!(list).to_string());
        }
        if let Some(steps) = self.list_referrers(request) {
            return steps;
        }
        let reference = target.rsplit('/').next().unwrap();
        let digest = self.tags.get(reference).map_or(reference, Digest::as_str);
        if let Some(status) = self.damaged.get(digest) {
            return request.answer(*status, "Content-Type: text/plain", "it is damaged");
        }
        match self.contents.get(digest) {
            Some(content) => {
                let kind = if content.contains("\"manifests\"") { INDEX } else { MANIFEST };
                request.answer(200, &format!("Content-Type: {kind}\r\nDocker-Content-Digest: {digest}"), content)
            }
            None => request.answer(404, "Content-Type: application/json", UNKNOWN),
        }
    }

    /// The answer about what is beside an image: by the API, which docker-registry has not, or by the fallback tag.
    pub(super) fn list_referrers(&self, request: &Request) -> Option<Vec<Step>> {
        let target = &*request.target;
        let is_documented = self.documented.as_ref().is_none_or(|name| target.starts_with(&format!("/v2/{name}/")));
        let listed = |all: &HashMap<Digest, Vec<Digest>>, digest: &str| {
            let digests = Digest::parse(digest).ok().and_then(|digest| all.get(&digest)).filter(|_| is_documented);
            // A fallback index may name wrong types, as that of GHCR does.
            let entry = |digest: &Digest| {
                json!({"mediaType": MANIFEST, "digest": digest.as_str(), "size": 1,
                "artifactType": "application/vnd.oci.empty.v1+json"})
            };
            digests.into_iter().flatten().map(entry).collect::<Vec<_>>()
        };
        let index =
            |entries: &[Value]| json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).to_string();
        let kind = format!("Content-Type: {INDEX}");
        if let Some((_, asked)) = target.split_once("/referrers/") {
            let Some(size) = self.page else {
                return Some(request.answer(404, "Content-Type: text/plain", "404 page not found\n"));
            };
            let (digest, from) = asked.split_once("?from=").unwrap_or((asked, "0"));
            let (from, all): (usize, _) = (from.parse().unwrap(), listed(&self.referrers, digest));
            let page = &all[from.min(all.len())..(from + size).min(all.len())];
            let path = target.split('?').next().unwrap();
            let next = from + size;
            let more =
                if next < all.len() { format!("\r\nLink: <{path}?from={next}>; rel=\"next\"") } else { String::new() };
            return Some(request.answer(200, &format!("{kind}{more}"), index(page)));
        }
        let (_, digits) = target.split_once("/manifests/sha256-")?;
        let lists = if self.page.is_some() { &self.before_api } else { &self.referrers };
        let all = listed(lists, &format!("sha256:{digits}"));
        if all.is_empty() {
            return None;
        }
        Some(request.answer(200, &kind, index(&all)))
    }
}
