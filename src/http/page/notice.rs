//! Views without data: signing in, the result of a decision, and errors.

use maud::{Markup, html};

use super::text::{outside, prose};

/// Why signing in is impossible here.
const NEEDS_TLS: &str = "A session travels only where nobody can read it, and this connection is not encrypted.";

/// The form to sign in. `to` is where it leads, `problem` why the last attempt failed, and `is_private` whether a session may begin here.
pub(crate) fn sign_in(to: &str, problem: Option<&str>, is_private: bool, came_from_elsewhere: bool) -> Markup {
    html! {
        section.narrow {
            h1 { "Sign in" }
            @if let Some(problem) = problem {
                p.problem role="alert" { (prose(problem)) }
            }
            @if is_private {
                @if came_from_elsewhere {
                    p { "You followed a link. If you are signed in already, " a href=(to) { "go on" } "." }
                }
                p.lead { "Paste a token with " code { "role: admin" } " or " code { "role: viewer" } " of this gateway’s configuration." }
                form.stacked method="post" action="/login" {
                    input type="hidden" name="to" value=(to);
                    // For password managers, which want to know whose token it is.
                    input type="text" name="username" autocomplete="username" value="appset-gateway" hidden;
                    label for="token" { "Token" }
                    input #token name="token" type="password" autocomplete="current-password" autofocus required maxlength="8192" spellcheck="false";
                    button.primary type="submit" { "Sign in" }
                }
                p.quiet { "The session ends after 8 hours, or with the token." }
            } @else {
                p.lead { (NEEDS_TLS) }
                ul.advice {
                    li { "Set " code { "server.adminTls" } " and come by " code { "https://" } "." }
                    li { "Or come through this machine: " code { "kubectl port-forward service/appset-gateway 4356" } ", then "
                        code { "http://localhost:4356" } "." }
                    li { "Or put a proxy in front that passes an ID token as " code { "Authorization: Bearer" } "." }
                }
            }
        }
    }
}

/// The error, with the id of the log lines with details.
pub(crate) fn problem(title: &str, message: &str, request_id: &str) -> Markup {
    html! {
        section.narrow {
            h1 { (title) }
            p.problem role="alert" { (prose(message)) }
            p { a href="/" { "Back to the overview" } }
            p.quiet { "Request " code { (outside(request_id)) } }
        }
    }
}

/// The action.
pub(crate) fn done(title: &str, message: &str) -> Markup {
    html! {
        section.narrow {
            h1 { (title) }
            p.lead role="status" { (prose(message)) }
            p { a href="/held" { "Back to the held answers" } }
        }
    }
}
