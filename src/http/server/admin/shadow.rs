//! `GET /admin/shadow`: the differences of the candidates of routes.

use serde_json::{Value, json};

use crate::app::App;

pub(super) fn list(app: &App) -> Value {
    let setup = app.setup();
    let shadows: Vec<_> = setup.routes.iter().filter_map(|route| Some(route.shadow.as_ref()?.report())).collect();
    json!({ "shadows": shadows })
}
