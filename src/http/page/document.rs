//! The frame of every view: the head, the navigation, and the visitor.

use maud::{DOCTYPE, Markup, html};

use super::{
    files::{ICON, SCRIPT, STYLE},
    text::outside,
};
use domain::clock::Timestamp;

/// Where a view is in the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tab {
    Overview,
    Held,
    Explain,
    Routes,
    Sources,
    Events,
    Configuration,
}

impl Tab {
    const ALL: [Self; 7] =
        [Self::Overview, Self::Held, Self::Explain, Self::Routes, Self::Sources, Self::Events, Self::Configuration];

    const fn name(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Held => "Held",
            Self::Explain => "Explain",
            Self::Routes => "Routes",
            Self::Sources => "Sources",
            Self::Events => "Events",
            Self::Configuration => "Configuration",
        }
    }

    /// Its path.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Overview => "/",
            Self::Held => "/held",
            Self::Explain => "/explain",
            Self::Routes => "/routes",
            Self::Sources => "/sources",
            Self::Events => "/events",
            Self::Configuration => "/configuration",
        }
    }
}

/// The visitor of the page.
#[derive(Debug, Clone)]
pub(crate) struct Visitor {
    /// The name in `auth`.
    pub(crate) name: String,
    /// Its role.
    pub(crate) role: &'static str,
    /// Whether it may decide about held answers.
    pub(crate) may_decide: bool,
    /// Whether it has a session, which it can end.
    pub(crate) can_leave: bool,
    /// The token that its forms send along.
    pub(crate) form_token: String,
}

/// The frame of a view.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    /// The title of the view.
    pub(crate) title: &'a str,
    /// Its place in the navigation.
    pub(crate) tab: Option<Tab>,
    /// The visitor; `None` before the sign-in, without navigation.
    pub(crate) visitor: Option<&'a Visitor>,
    /// How many answers are held.
    pub(crate) held: usize,
    /// When it was drawn.
    pub(crate) now: Timestamp,
    /// Whether it may be drawn again by itself.
    pub(crate) refreshes: bool,
}

/// The whole document.
pub(crate) fn draw(frame: &Frame<'_>, content: &Markup) -> String {
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (frame.title) " – appset-gateway" }
                link rel="icon" type="image/svg+xml" href=(ICON.path);
                link rel="stylesheet" href=(STYLE.path);
                script src=(SCRIPT.path) defer {}
            }
            body data-refresh[frame.refreshes] {
                a.skip href="#content" { "Skip to the content" }
                (banner(frame))
                main #content tabindex="-1" {
                    (content)
                }
                footer {
                    span { "appset-gateway " (env!("CARGO_PKG_VERSION")) }
                    span { "as of " time datetime=(frame.now.to_date()) { (frame.now.to_date().replace('T', " ").replace('Z', " UTC")) } }
                    span #refresh {}
                }
            }
        }
    };
    document.into_string()
}

fn banner(frame: &Frame<'_>) -> Markup {
    html! {
        header.banner {
            div.bar {
                a.brand href="/" { span.mark aria-hidden="true" {} "appset-gateway" }
                @if let Some(visitor) = frame.visitor {
                    div.visitor {
                        span { (outside(&visitor.name)) " " span.role { (visitor.role) } }
                        @if visitor.can_leave {
                            form method="post" action="/logout" {
                                (form_token(visitor))
                                button.plain type="submit" { "Sign out" }
                            }
                        }
                    }
                }
            }
            @if frame.visitor.is_some() {
                nav aria-label="Views" {
                    ul {
                        @for tab in Tab::ALL {
                            li {
                                a href=(tab.path()) aria-current=[(frame.tab == Some(tab)).then_some("page")] {
                                    (tab.name())
                                    @if tab == Tab::Held && frame.held > 0 { " " span.badge { (frame.held) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The hidden field of each form.
pub(super) fn form_token(visitor: &Visitor) -> Markup {
    html! { input type="hidden" name="formToken" value=(visitor.form_token); }
}
