//! The page for a person at `/`: the state of the gateway in tables, with buttons that cancel and
//! retry writes (SPECIFICATION, "The page").
//!
//! The server renders everything. The script only replaces sections by newer ones (`live`). A
//! browser holds a session in place of the admin token (`session`), which opens the page alone and
//! not the API. Left out: the sections (`view`).

mod document;
mod history;
mod live;
mod session;
mod view;

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use percent_encoding::percent_decode_str;
use zeroize::Zeroizing;

use self::document::Notice;
use self::history::{History, keep_sampling};
use self::live::Live;
use self::session::Sessions;
use super::{
    Peer, Reply, Site, is_authorized, is_token, only_get, only_post, pages, refused, writes,
};
use crate::config::{Listen, digest};
use crate::cross_site;
use crate::gateway::{Current, Gateway, Repetition};
use crate::writes::WriteId;
use secrecy::ExposeSecret;

/// Own files by their paths, and nothing else: no inline text, and nothing from other hosts.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; \
    frame-ancestors 'none'";

/// State of the page beside the gateway, for the life of the listener.
pub struct Page {
    sessions: Sessions,
    history: Arc<History>,
    live: Live,
}

/// A path of the page.
#[derive(Clone, Copy)]
pub enum Place<'p> {
    Home,
    /// Media type and text.
    File(&'static str, &'static str),
    Live,
    Login,
    Logout,
    Cancel(&'p str),
    Retry(&'p str),
}

/// The right by which a request sees the page.
#[derive(Clone)]
pub enum Right {
    /// The config has no admin token.
    Open,
    /// The request has the token, of this digest.
    Token([u8; 32]),
    /// The request has this session.
    Session(String),
}

impl Page {
    /// Begins to take samples of the budgets.
    pub fn new(current: &Arc<Current>) -> Self {
        let history = Arc::default();
        tokio::spawn(keep_sampling(Arc::downgrade(current), Arc::downgrade(&history)));
        Self { sessions: Sessions::default(), history, live: Live::default() }
    }

    /// Returns true if the right holds still: an end of the session and another token end it.
    fn holds(&self, right: &Right, gateway: &Gateway) -> bool {
        match (right, &gateway.env.config.listen.admin_token) {
            (Right::Open, token) => token.is_none(),
            (_, None) => false,
            (Right::Token(given), Some(token)) => {
                *given == digest(token.expose_secret().as_bytes())
            }
            (Right::Session(session), Some(token)) => {
                self.sessions.holds(session, token, gateway.env.clock.now())
            }
        }
    }

    /// The right of a request; `None`: it has neither token nor session.
    fn right_of(&self, request: &Parts, gateway: &Gateway) -> Option<Right> {
        let right = match &gateway.env.config.listen.admin_token {
            None => Right::Open,
            Some(token) if is_authorized(request, token) => {
                Right::Token(digest(token.expose_secret().as_bytes()))
            }
            Some(_) => Right::Session(Sessions::of(&request.headers)?.to_owned()),
        };
        self.holds(&right, gateway).then_some(right)
    }
}

impl<'p> Place<'p> {
    /// Parses a path; `None` outside the page.
    pub fn of(path: &'p str) -> Option<Self> {
        Some(match path {
            "/" => Self::Home,
            "/page.css" => Self::File("text/css; charset=utf-8", include_str!("page.css")),
            "/page.js" => Self::File("text/javascript; charset=utf-8", include_str!("page.js")),
            "/icon.svg" => Self::File("image/svg+xml", include_str!("icon.svg")),
            "/live" => Self::Live,
            "/login" => Self::Login,
            "/logout" => Self::Logout,
            _ => match path.strip_prefix("/writes/")?.split_once('/')? {
                (id, "cancel") => Self::Cancel(id),
                (id, "retry") => Self::Retry(id),
                _ => return None,
            },
        })
    }

    fn is_action(self) -> bool {
        matches!(self, Self::Login | Self::Logout | Self::Cancel(_) | Self::Retry(_))
    }
}

/// Answers a request for the page.
pub async fn answer(
    site: &Arc<Site>,
    place: Place<'_>,
    request: &Parts,
    body: Option<&Bytes>,
) -> Reply {
    let gateway = site.current.gateway();
    let listen = &gateway.env.config.listen;
    match (place.is_action(), &request.method) {
        (true, &Method::POST) | (false, &Method::GET) => {}
        (false, &Method::HEAD) if !matches!(place, Place::Live) => {}
        (true, _) => return only_post(),
        (false, _) => return only_get(),
    }
    let is_open = listen.admin_token.is_none();
    if is_open && let Some(refused) = refused(request, listen) {
        return refused;
    }
    if let Place::File(media_type, text) = place {
        return guarded(pages::page(StatusCode::OK, HeaderValue::from_static(media_type), text));
    }
    let is_own = || cross_site::is_of_own_page(&request.uri, &request.headers);
    if matches!(place, Place::Login) {
        return if is_own() { login(site, &gateway, request, body) } else { foreign() };
    }
    let Some(right) = site.page.right_of(request, &gateway) else {
        return unauthorized(request, listen);
    };
    let is_browser = !matches!(right, Right::Token(_));
    if place.is_action() && is_browser && !is_own() {
        return foreign();
    }
    match place {
        Place::Home => {
            let notice = notice_of(request.uri.query().unwrap_or_default());
            home(site, StatusCode::OK, notice.as_ref(), &right).await
        }
        Place::Live => live::stream(site, right),
        Place::Logout => logout(site, &gateway, &right),
        Place::Cancel(id) | Place::Retry(id) => {
            let done = act(&gateway, place, id, body).await;
            acted(site, place, id, done, &right).await
        }
        Place::File(..) | Place::Login => unauthorized(request, listen),
    }
}

async fn home(
    site: &Arc<Site>,
    status: StatusCode,
    notice: Option<&Notice>,
    right: &Right,
) -> Reply {
    let Some((now, contents)) = view::contents(site).await else { return super::not_made() };
    let can_leave = matches!(right, Right::Session(_));
    html(status, document::page(now, &contents, notice, can_leave))
}

/// Compares the token of the form, and begins a session.
fn login(site: &Site, gateway: &Gateway, request: &Parts, body: Option<&Bytes>) -> Reply {
    let listen = &gateway.env.config.listen;
    let Some(token) = &listen.admin_token else { return see_other("/") };
    let address = request.extensions.get::<Peer>().map_or(IpAddr::from([0; 4]), |peer| peer.0);
    let now = gateway.env.clock.now();
    if let Err(wait) = site.page.sessions.try_login(address, now) {
        let seconds = wait.as_secs().max(1);
        let text = format!("Too many tries. Try again in {seconds} s.");
        let mut reply = html(StatusCode::TOO_MANY_REQUESTS, document::login(Some(&text)));
        reply.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        return reply;
    }
    let given = body.and_then(|body| field(body, "token")).unwrap_or_default();
    if !is_token(given.as_bytes(), token) {
        tracing::warn!(%address, "a login to the admin page had another token");
        let text = "That is not the admin token.";
        return html(StatusCode::UNAUTHORIZED, document::login(Some(text)));
    }
    let Some(cookie) = Sessions::begin(token, listen.admin_tls.is_some(), now) else {
        return super::not_made();
    };
    site.page.sessions.logged_in(address);
    tracing::info!(%address, "a person has logged in to the admin page");
    let mut reply = see_other("/");
    reply.headers_mut().insert(header::SET_COOKIE, cookie);
    reply
}

fn logout(site: &Site, gateway: &Gateway, right: &Right) -> Reply {
    let listen = &gateway.env.config.listen;
    if let (Right::Session(session), Some(token)) = (right, &listen.admin_token) {
        site.page.sessions.leave(session, token, gateway.env.clock.now());
    }
    let mut reply = see_other("/");
    let removal = Sessions::removal(listen.admin_tls.is_some());
    reply.headers_mut().insert(header::SET_COOKIE, removal);
    reply
}

/// Cancels or retries a write; or returns status and message of an error.
async fn act(
    gateway: &Arc<Gateway>,
    place: Place<'_>,
    id: &str,
    body: Option<&Bytes>,
) -> Result<(), (StatusCode, String)> {
    let Ok(id) = id.parse::<WriteId>() else {
        return Err((StatusCode::UNPROCESSABLE_ENTITY, "that is no id of a write".to_owned()));
    };
    let Ok(_using) = gateway.writes.queue().enter().await else {
        return Err((StatusCode::SERVICE_UNAVAILABLE, writes::ELSEWHERE.to_owned()));
    };
    let done = if let Place::Cancel(_) = place {
        writes::cancel(gateway, id).await
    } else {
        let even = body.and_then(|body| field(body, "even_if_executed"));
        let repetition = match even.as_deref().map(String::as_str) {
            Some("true") => Repetition::EvenIfExecuted,
            _ => Repetition::IfNotExecuted,
        };
        writes::retry(gateway, id, repetition).await
    };
    done.map_err(|not_done| (not_done.status, not_done.message))
}

/// Leads to the page, whose address says what was done, or shows the error.
async fn acted(
    site: &Arc<Site>,
    place: Place<'_>,
    id: &str,
    done: Result<(), (StatusCode, String)>,
    right: &Right,
) -> Reply {
    let (word, verb) = match place {
        Place::Cancel(_) => ("cancelled", "cancelled"),
        _ => ("retried", "tried again"),
    };
    match done {
        // The id has been parsed.
        Ok(()) => see_other(&format!("/?{word}={id}")),
        Err((status, message)) => {
            let text = format!("Write {id} was not {verb}: {message}.");
            home(site, status, Some(&Notice { is_error: true, text }), right).await
        }
    }
}

/// The notice about an action that the address names.
fn notice_of(query: &str) -> Option<Notice> {
    let (word, id) = query.split_once('=')?;
    let id: WriteId = id.parse().ok()?;
    let text = match word {
        "cancelled" => format!("Write {id} was cancelled."),
        "retried" => format!("Write {id} is tried again."),
        _ => return None,
    };
    Some(Notice { is_error: false, text })
}

/// A 401: the login for a browser, and the error of the API for others.
fn unauthorized(request: &Parts, listen: &Listen) -> Reply {
    let accepts = request.headers.get_all(header::ACCEPT).iter();
    let is_browser = accepts
        .filter_map(|accept| accept.to_str().ok())
        .any(|accept| accept.to_ascii_lowercase().contains("text/html"));
    if is_browser {
        return html(StatusCode::UNAUTHORIZED, document::login(None));
    }
    refused(request, listen).unwrap_or_else(super::not_made)
}

fn foreign() -> Reply {
    let message = "the page itself sends this: an Origin or Sec-Fetch-Site of its own is needed";
    pages::error(StatusCode::FORBIDDEN, message)
}

fn see_other(to: &str) -> Reply {
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    let mut reply = guarded(pages::page(StatusCode::SEE_OTHER, text, "see the page\n"));
    if let Ok(to) = HeaderValue::from_str(to) {
        reply.headers_mut().insert(header::LOCATION, to);
    }
    reply
}

fn html(status: StatusCode, text: String) -> Reply {
    let media_type = HeaderValue::from_static("text/html; charset=utf-8");
    guarded(pages::page(status, media_type, text))
}

/// Adds the headers that keep foreign code and foreign pages out.
fn guarded(mut reply: Reply) -> Reply {
    let add = |headers: &mut HeaderMap, name: HeaderName, value: &'static str| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    let headers = reply.headers_mut();
    add(headers, header::CONTENT_SECURITY_POLICY, CONTENT_POLICY);
    add(headers, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    // `no-referrer` would hide the origin of a form too.
    add(headers, header::REFERRER_POLICY, "same-origin");
    let policy = HeaderName::from_static("cross-origin-resource-policy");
    add(headers, policy, "same-origin");
    let policy = HeaderName::from_static("cross-origin-opener-policy");
    add(headers, policy, "same-origin");
    reply
}

/// The value of a field of a form.
fn field(body: &[u8], name: &str) -> Option<Zeroizing<String>> {
    let body = std::str::from_utf8(body).ok()?;
    let value = body.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    let value = Zeroizing::new(value.replace('+', " "));
    Some(Zeroizing::new(percent_decode_str(&value).decode_utf8().ok()?.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_decoded() {
        let body = b"other=1&token=a%2Bb+c%26&token=2";
        assert_eq!(field(body, "token").as_deref().map(String::as_str), Some("a+b c&"));
        assert_eq!(field(body, "tok"), None);
        assert_eq!(field(b"token=%ff", "token"), None);
    }

    #[test]
    fn a_notice_names_a_write_alone() {
        let text = |query| notice_of(query).map(|notice| notice.text);
        assert_eq!(
            text("cancelled=1f-0000000000000007").as_deref(),
            Some("Write 1f-0000000000000007 was cancelled.")
        );
        for query in ["", "cancelled=<b>", "cancelled=", "bought=1f-0000000000000007"] {
            assert_eq!(text(query), None, "{query}");
        }
    }
}
