//! The views, each made of what the gateway knows now.

use std::{pin::Pin, sync::Arc};

use url::form_urlencoded;

use super::{
    super::{
        super::error::{ApiError, Code},
        off_thread,
    },
    Asked, View,
};
use crate::{
    app::App,
    engine::{cache::Key, guard::Held},
    http::page::{
        Tab,
        held::{self, Shown},
        overview,
        pages::Page,
    },
};

type Drawn = Pin<Box<dyn Future<Output = View> + Send>>;

/// The views of the navigation.
pub(super) const ALL: [(Tab, fn(Asked) -> Drawn); 2] =
    [(Tab::Overview, |asked| Box::pin(overview(asked))), (Tab::Held, |asked| Box::pin(list_held(asked)))];

impl Asked {
    /// A value of the query.
    fn query(&self, name: &str) -> Option<String> {
        let pairs = form_urlencoded::parse(self.head.uri.query().unwrap_or_default().as_bytes());
        pairs.into_owned().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    /// The page of a list with `total` entries.
    fn page(&self, total: usize) -> Page {
        Page::new(total, self.query("page").and_then(|number| number.parse().ok()).unwrap_or(1))
    }
}

async fn overview(asked: Asked) -> View {
    Ok(("Overview", overview::overview(&[], &[("Held", asked.app.engine.held_count().to_string())])))
}

async fn list_held(asked: Asked) -> View {
    let mut all = asked.app.engine.held();
    all.sort_by_key(|(lineage, held)| (held.since, *lineage.as_bytes()));
    let page = asked.page(all.len());
    let (app, all) = (Arc::clone(&asked.app), page.of(all));
    let shown = off_thread(move || all.into_iter().map(|held| shown(&app, held)).collect::<Vec<_>>()).await?;
    Ok(("Held answers", held::list(&shown, page, &asked.visitor, asked.app.now())))
}

pub(super) async fn one_held(asked: Asked) -> View {
    let all = asked.app.engine.held();
    let Some(held) = all.into_iter().find(|(lineage, _)| lineage.to_string() == asked.name) else {
        return Err(ApiError::new(Code::NotFound, "nothing is held under this id any more"));
    };
    let app = Arc::clone(&asked.app);
    let shown = off_thread(move || with_rest(&app, held)).await?;
    Ok(("A held answer", held::one(&shown, &asked.visitor, asked.app.now())))
}

fn shown(app: &App, (_, held): (Key, Held)) -> Shown {
    let asked_by = app.engine.asked_by(&held.question, &held.key);
    let last_good = app.engine.last_good(&held).map(|entry| entry.encoded.sets());
    Shown { held, asked_by, last_good, stays: Vec::new() }
}

/// The same, with the names of what stays.
fn with_rest(app: &App, held: (Key, Held)) -> Shown {
    let shown = shown(app, held);
    let stays = app.engine.staying(&shown.held);
    Shown { stays, ..shown }
}
