//! Plugins without a gateway, as people write them first: ask the source, take out the list, answer it. They have no memory.

use std::sync::Arc;

use parking_lot::Mutex;
use reqwest::Url;
use serde_json::{Value, json};

use crate::{
    source::Set,
    web::{Client, Response, Site},
};

/// What a plugin does with an error of its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnError {
    /// It catches the error and goes on with an empty list, or without the item.
    Catch,
    /// It answers with an error.
    PassOn,
}

/// A plugin for all ApplicationSets.
pub(crate) struct Plugin {
    source: Url,
    client: Client,
    on_error: OnError,
    /// The errors that were caught since they were last read.
    caught: Arc<Mutex<Vec<String>>>,
}

impl Plugin {
    /// A plugin before the `source`.
    pub(crate) fn new(source: Url, client: Client, on_error: OnError) -> Self {
        Self { source, client, on_error, caught: Arc::default() }
    }

    /// Where the plugin notes the errors that it catches.
    pub(crate) fn caught(&self) -> Arc<Mutex<Vec<String>>> {
        Arc::clone(&self.caught)
    }

    async fn list(&self, set: Set) -> Result<Vec<Value>, String> {
        match set {
            Set::Tenants => items(self.json("/tenants").await?),
            Set::Clusters => items(self.json("/memberships").await?["memberships"].take()),
            Set::Previews => {
                let mut previews = Vec::new();
                for pull in items(self.json("/pulls").await?)? {
                    let tag = pull["head_sha"].as_str().unwrap_or_default();
                    match self.json(&format!("/v2/shop/manifests/{tag}")).await {
                        Ok(_) => previews.push(json!({ "number": pull["number"], "image": format!("shop:{tag}") })),
                        Err(why) if self.on_error == OnError::Catch => self.caught.lock().push(why),
                        Err(why) => return Err(why),
                    }
                }
                Ok(previews)
            }
        }
    }

    /// The JSON at `path` of the source.
    async fn json(&self, path: &str) -> Result<Value, String> {
        let url = self.source.join(path).map_err(|error| error.to_string())?;
        match self.client.get(url, None).await? {
            (200, body) => serde_json::from_slice(&body).map_err(|error| format!("{path}: {error}")),
            (status, _) => Err(format!("{} answered {status}", path.get(..24).unwrap_or(path))),
        }
    }
}

impl Site for Plugin {
    async fn answer(&self, path: &str) -> Response {
        let Some(set) = Set::ALL.into_iter().find(|set| path == format!("/{}/api/v1/getparams.execute", set.name()))
        else {
            return Response::json(404, &json!({ "message": "there is no such plugin" }));
        };
        let list = match self.list(set).await {
            Ok(list) => list,
            Err(why) if self.on_error == OnError::PassOn => return Response::json(502, &json!({ "message": why })),
            Err(why) => {
                self.caught.lock().push(why);
                Vec::new()
            }
        };
        Response::json(200, &json!({ "output": { "parameters": list } }))
    }
}

fn items(list: Value) -> Result<Vec<Value>, String> {
    match list {
        Value::Array(items) => Ok(items),
        other => Err(format!("not a list: {other}")),
    }
}
