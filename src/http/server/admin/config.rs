//! `GET /admin/config`: the configuration in use, and the result of the last reload.

use serde_json::{Value, json};

use super::rfc3339;
use crate::app::{App, Attempt};

pub(super) fn tell(app: &App) -> Value {
    let (setup, last) = app.setup_and_last_attempt();
    let names: Vec<&str> = setup.routes.iter().map(|route| &*route.name).collect();
    json!({
        "generation": setup.generation,
        "since": rfc3339(setup.since),
        "routes": names,
        "atTheNextStart": app.at_the_next_start(),
        "lastReload": last.as_ref().map(tell_attempt),
        "outline": setup.outline,
    })
}

fn tell_attempt(attempt: &Attempt) -> Value {
    let at = rfc3339(attempt.at);
    match &attempt.result {
        Ok(changes) => json!({ "at": at, "isGood": true, "changes": **changes }),
        Err(problems) => json!({ "at": at, "isGood": false, "problems": problems }),
    }
}
