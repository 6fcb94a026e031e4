//! The views, each made of the gateway's present state.

use std::{pin::Pin, sync::Arc};

use maud::html;
use url::form_urlencoded;

use super::{
    super::{
        super::error::{ApiError, Code},
        off_thread,
    },
    PageRequest, View,
};
use crate::{
    app::App,
    http::page::{
        Tab, configuration, events, explain,
        held::{self, Shown},
        overview as first,
        pages::Page,
        routes, sources,
    },
    overview::{self, answers::RememberedAnswer, elements::DEFAULT_LISTED},
};
use domain::generator::Selector;
use engine::{
    cache::{Key, KeyStart},
    guard::Held,
};

type Drawn = Pin<Box<dyn Future<Output = View> + Send>>;

/// Draws a view for a request.
pub(super) type Draw = fn(PageRequest) -> Drawn;

/// The views of the navigation.
pub(super) const ALL: [(Tab, Draw); 7] = [
    (Tab::Overview, |request| Box::pin(what_is_wrong(request))),
    (Tab::Held, |request| Box::pin(list_held(request))),
    (Tab::Explain, |request| Box::pin(question(request))),
    (Tab::Routes, |request| Box::pin(list_routes(request))),
    (Tab::Sources, |request| Box::pin(list_sources(request))),
    (Tab::Events, |request| Box::pin(list_events(request))),
    (Tab::Configuration, |request| Box::pin(in_use(request))),
];

impl PageRequest {
    /// A value of the query.
    fn query(&self, name: &str) -> Option<String> {
        let pairs = form_urlencoded::parse(self.head.uri.query().unwrap_or_default().as_bytes());
        pairs.into_owned().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    /// The number of the page of a list.
    fn number(&self) -> usize {
        self.query("page").and_then(|number| number.parse().ok()).unwrap_or(1)
    }

    /// The result of `read`. It may read all answers, so it runs on a thread that may block.
    async fn read<T: Send + 'static>(&self, read: impl FnOnce(&App) -> T + Send + 'static) -> Result<T, ApiError> {
        let app = Arc::clone(&self.app);
        off_thread(move || read(&app)).await
    }
}

async fn what_is_wrong(request: PageRequest) -> View {
    let (status, held) = request.read(|app| (overview::status::status(app), overview::held::held(app))).await?;
    Ok(("Overview", first::overview(&status, &held, request.app.now())))
}

async fn list_held(request: PageRequest) -> View {
    let number = request.number();
    let (shown, page) = request
        .read(move |app| {
            let mut all = app.engine.held();
            all.sort_by_key(|(lineage, held)| (held.since, *lineage.as_bytes()));
            let page = Page::new(all.len(), number);
            (page.of(all).into_iter().map(|held| shown(app, held)).collect::<Vec<_>>(), page)
        })
        .await?;
    Ok(("Held answers", held::list(&shown, page, &request.visitor, request.app.now())))
}

pub(super) async fn one_held(request: PageRequest) -> View {
    let all = request.app.engine.held();
    let Some(held) = all.into_iter().find(|(lineage, _)| lineage.to_string() == request.name) else {
        return Err(ApiError::new(Code::NotFound, "nothing is held under this id any more"));
    };
    let shown = request.read(move |app| with_rest(app, held)).await?;
    Ok(("A held answer", held::one(&shown, &request.visitor, request.app.now())))
}

fn shown(app: &App, (_, held): (Key, Held)) -> Shown {
    let requesters = app.engine.requesters(&held.question, &held.key);
    let last_good = app.engine.last_good(&held);
    let has_fallback = app.engine.has_fallback(&app.setup().routes, &held);
    Shown { held, requesters, last_good: last_good.map(|entry| entry.encoded.sets()), has_fallback, stays: Vec::new() }
}

/// The same, with the names of the filters that stay.
fn with_rest(app: &App, held: (Key, Held)) -> Shown {
    let shown = shown(app, held);
    let stays = app.engine.staying(&shown.held);
    Shown { stays, ..shown }
}

/// The form for a question, filled with a known one if the query has its key.
async fn question(request: PageRequest) -> View {
    let now = request.app.now();
    let names = route_names(&request.app);
    let wanted = request.query("route").filter(|route| names.contains(route));
    let known = match request.query("key") {
        None => None,
        Some(key) => {
            let gone = || ApiError::new(Code::NotFound, "no answer with this key is remembered any more");
            let start = KeyStart::parse(&key).map_err(|_| gone())?;
            Some(
                request
                    .read(move |app| overview::answers::answer(app, &start, DEFAULT_LISTED))
                    .await?
                    .map_err(|_| gone())?,
            )
        }
    };
    let form = match &known {
        Some(known) => explain::QuestionForm::of(&known.about),
        None => explain::QuestionForm { route: wanted.clone().unwrap_or_default(), ..explain::QuestionForm::default() },
    };
    let rest = if let Some(known) = &known {
        explain::remembered(&known.about, known.answer.as_ref(), "", now)
    } else {
        let (number, route) = (request.number(), wanted.clone());
        let (answers, page) = request.read(move |app| known_questions(app, route, number)).await?;
        explain::known(&answers, page, wanted.as_deref(), now)
    };
    let content = html! {
        div.heading { h1 { "Explain an answer" } }
        (explain::form(&form, &names, None, &request.visitor))
        (rest)
    };
    Ok(("Explain", content))
}

/// The names of all routes.
pub(super) fn route_names(app: &App) -> Vec<String> {
    app.setup().routes.iter().map(|route| route.name.to_string()).collect()
}

/// One page of the remembered answers.
fn known_questions(app: &App, route: Option<String>, number: usize) -> (Vec<RememberedAnswer>, Page) {
    let selector = Selector { route, ..Selector::default() };
    let all = app.engine.list(&app.setup().routes, &selector);
    let page = Page::new(all.len(), number);
    (page.of(all).iter().map(RememberedAnswer::of).collect(), page)
}

async fn list_routes(request: PageRequest) -> View {
    let all = request.read(overview::routes::routes).await?;
    Ok(("Routes", routes::routes(&all, request.app.now())))
}

async fn list_sources(request: PageRequest) -> View {
    let all = request.read(overview::sources::sources).await?;
    Ok(("Sources", sources::sources(&all, request.app.now())))
}

async fn list_events(request: PageRequest) -> View {
    let all = request.read(overview::events::events).await?;
    let has_hooks = request.app.setup().hooks.iter().next().is_some();
    Ok(("Events", events::events(&all, has_hooks, request.app.now())))
}

async fn in_use(request: PageRequest) -> View {
    let config = request.read(overview::config::config).await?;
    Ok(("Configuration", configuration::configuration(&config, request.app.now())))
}
