//! The documents: the page around its sections, the login, and a notice about an action.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::view::{Contents, SECTIONS};
use crate::clock::Timestamp;

/// A sentence about an action, at the top of the page.
pub struct Notice {
    pub is_error: bool,
    pub text: String,
}

/// The page with its sections; `can_leave` with a button that ends the session.
pub fn page(
    now: Timestamp,
    contents: &Contents,
    notice: Option<&Notice>,
    can_leave: bool,
) -> String {
    let body = html! {
        a.skip href="#attention" { "Skip to what needs attention" }
        header {
            h1 { "Weir" }
            p.as-of {
                span { "As of " time #now { (clock_of(now)) } " UTC." }
                span #live role="status" {}
                a #refresh href="/" { "Refresh" }
            }
            nav aria-label="Sections" {
                ul { @for section in &SECTIONS {
                    li { a href={ "#" (section.id) } { (section.title) } }
                } }
            }
            @if can_leave {
                form method="post" action="/logout" { button { "Log out" } }
            }
        }
        main {
            @if let Some(notice) = notice {
                p.notice.bad[notice.is_error] role=@if notice.is_error { "alert" } @else { "status" } {
                    (notice.text)
                }
            }
            @for (section, content) in SECTIONS.iter().zip(contents) {
                section id=(section.id) aria-labelledby={ (section.id) "-title" } tabindex="-1" {
                    h2 id={ (section.id) "-title" } { (section.title) }
                    // Made by templates, which have escaped it.
                    div id={ (section.id) "-content" } { (PreEscaped(content)) }
                }
            }
        }
    };
    document("Weir", "page", &body)
}

/// The form that asks for the admin token.
pub fn login(problem: Option<&str>) -> String {
    let body = html! {
        main.login {
            h1 { "Weir" }
            form method="post" action="/login" {
                label for="token" { "Admin token" }
                input #token name="token" type="password" required autofocus
                    autocomplete="current-password"
                    aria-describedby=[problem.map(|_| "problem")];
                @if let Some(problem) = problem {
                    p #problem .bad role="alert" { (problem) }
                }
                button { "Log in" }
            }
        }
    };
    document("Weir: log in", "login", &body)
}

/// The time of a day for the head of the page.
pub fn clock_of(now: Timestamp) -> String {
    let text = now.rfc3339_past();
    text.get(11..19).unwrap_or(&text).to_owned()
}

fn document(title: &str, kind: &str, body: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { (title) }
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                link rel="icon" href="/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href="/page.css";
                @if kind == "page" { script src="/page.js" defer {} }
            }
            body { (body) }
        }
    }
    .into_string()
}
