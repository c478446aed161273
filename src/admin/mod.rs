//! The admin listener: health, metrics, budgets, the queue of writes and a page for browsers, for
//! operators only (SPECIFICATION, "Admin listener").
//!
//! A small server of its own keeps the operator's view when clients flood the gateway's listeners.
//! Nothing here shows a credential, only names of the config and figures.

pub(crate) mod advice;
pub(crate) mod budgets;
pub(crate) mod cache;
pub(crate) mod clients;
mod listener;
mod page;
mod pages;
pub(crate) mod reload;
pub(crate) mod replicas;
pub(crate) mod requests;
pub(crate) mod telemetry;
pub(crate) mod writes;

pub(crate) use pages::{figures, unready};

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Collected, Empty, Limited};
use hyper::body::Incoming;
use secrecy::ExposeSecret;
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

use self::listener::Listener;
use crate::config::{Listen, Secret, digest};
use crate::cross_site;
use crate::gateway::{ADMIN_TLS, Current, Gateway, Kind, Socket, Sockets, Tls, bind};

/// Timeout of a request head; the default for clients is the same.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest body. Our choice: a prefix to purge is part of a path, and no request head is longer
/// than this.
const BODY_BYTES_MAX: usize = 32 * 1024;

/// Wait of `/readyz` for a look at the tokens. Our choice: load balancers wait for a second.
const LOOK_TIMEOUT: Duration = Duration::from_millis(500);

/// Message of a 413.
const NO_BODY: &str = "the body is too long, or did not come";

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Challenge of a 401, by which commands recognise this listener.
pub const CHALLENGE: &str = "Bearer realm=\"weir admin\"";

type Reply = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The gateway in force, and what the page keeps beside it.
struct Site {
    current: Arc<Current>,
    page: page::Page,
}

/// The address at the other end of a connection, which each of its requests carries.
#[derive(Clone, Copy)]
struct Peer(IpAddr);

/// The open admin listener, if there is one.
pub struct Admin {
    address: Option<SocketAddr>,
    stop: watch::Sender<bool>,
}

impl Admin {
    /// Opens the listener of the config and serves it until the process ends: health must be
    /// answered during a drain.
    pub fn open(current: &Arc<Current>) -> io::Result<Self> {
        let Some(address) = current.gateway().env.config.listen.admin else {
            return Ok(Self::nowhere());
        };
        let listener = bind::bind_tcp(&address)?;
        listener.set_nonblocking(true)?;
        Self::serve(current, TcpListener::from_std(listener)?)
    }

    /// The same on the socket for the listener of the config.
    pub fn open_on(current: &Arc<Current>, sockets: &mut Sockets) -> io::Result<Self> {
        let Some(address) = current.gateway().env.config.listen.admin else {
            return Ok(Self::nowhere());
        };
        match sockets.take(Kind::Admin, address)?.socket {
            Socket::Tcp(listener) => Self::serve(current, TcpListener::from_std(listener)?),
            Socket::Unix(_) => Ok(Self::nowhere()),
        }
    }

    fn nowhere() -> Self {
        Self { address: None, stop: watch::Sender::new(false) }
    }

    fn serve(current: &Arc<Current>, listener: TcpListener) -> io::Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let address = listener.local_addr()?;
        let tls = Tls::new(ADMIN_TLS, current)?;
        if let Some(tls) = &tls {
            tokio::spawn(Arc::clone(tls).renew(Arc::clone(current)));
        }
        let listener = Listener::new(listener, tls)?;
        let site = Site { current: Arc::clone(current), page: page::Page::new(current) };
        tokio::spawn(listener.serve(Arc::new(site), stopped));
        Ok(Self { address: Some(address), stop })
    }

    /// Leaves new connections to another process, and ends open ones after their current answer.
    pub fn hand_over(&self) {
        self.stop.send_replace(true);
    }

    /// Returns the bound address; `None` without an admin listener.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

/// Reads and answers a request.
async fn respond(site: Arc<Site>, request: Request<Incoming>) -> Reply {
    let (head, body) = request.into_parts();
    let body = read(&head, body).await;
    // A separate task, so that an action completes even if the operator disconnects, or a drain
    // begins.
    let guard = site.current.gateway().env.active.hold();
    let task = tokio::spawn(async move {
        let _guard = guard;
        answer(site, head, body).await
    });
    task.await.unwrap_or_else(|_| not_made())
}

/// Reads the body of a POST. `None`: too long, too slow or cut off. Other bodies are ignored.
async fn read(head: &Parts, body: Incoming) -> Option<Bytes> {
    if head.method != Method::POST {
        return Some(Bytes::new());
    }
    let collected = timeout(HEAD_TIMEOUT, Limited::new(body, BODY_BYTES_MAX).collect()).await;
    collected.ok()?.ok().map(Collected::to_bytes)
}

async fn answer(site: Arc<Site>, request: Parts, body: Option<Bytes>) -> Reply {
    let is_head = request.method == Method::HEAD;
    let mut reply = made(&site, request, body).await;
    if is_head {
        let length = hyper::body::Body::size_hint(reply.body()).exact().unwrap_or_default();
        reply.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        *reply.body_mut() = Empty::new().boxed_unsync();
    }
    reply
}

/// Checks the right to ask, and answers with the page.
async fn made(site: &Arc<Site>, request: Parts, body: Option<Bytes>) -> Reply {
    let gateway = site.current.gateway();
    let path = request.uri.path();
    if let Some(place) = page::Place::of(path) {
        return page::answer(site, place, &request, body.as_ref()).await;
    }
    // Health is for load balancers, which hold no secrets.
    let is_health = matches!(path, "/healthz" | "/readyz");
    if !is_health && let Some(refused) = refused(&request, &gateway.env.config.listen) {
        return refused;
    }
    if path == "/api/reload" {
        return match request.method {
            Method::POST => reload::reload(Arc::clone(&site.current)).await,
            _ => only_post(),
        };
    }
    if path == "/api/budgets/refresh" {
        return match (&request.method, body) {
            (&Method::POST, Some(body)) => budgets::refresh(&gateway, &body).await,
            (&Method::POST, None) => pages::error(StatusCode::PAYLOAD_TOO_LARGE, NO_BODY),
            _ => only_post(),
        };
    }
    if path == "/api/telemetry" {
        return telemetry::answer(&request.method, body.as_ref());
    }
    if path == "/api/replicas" {
        return match request.method {
            Method::GET | Method::HEAD => replicas::page(&gateway).await,
            _ => only_get(),
        };
    }
    if path == "/readyz" && !gateway.env.active.is_leaving() {
        gateway.dispatcher.looked(LOOK_TIMEOUT).await;
    }
    if let Some(page) = writes::Page::of(path) {
        return page.answer(&gateway, &request, body.as_ref()).await;
    }
    // A page about thousands of accounts takes tens of milliseconds, which must not delay clients.
    let is_purge = path == "/api/cache/purge";
    let shown = Arc::clone(&gateway);
    let made = tokio::task::spawn_blocking(move || walked(&shown, &request, body.as_ref())).await;
    if is_purge {
        // Of other replicas too.
        gateway.cache.all_noted().await;
    }
    made.unwrap_or_else(|_| not_made())
}

/// Refuses a request without the admin token. Where the config has none, refuses those that a page
/// of another site may have caused.
fn refused(request: &Parts, listen: &Listen) -> Option<Reply> {
    let (uri, headers) = (&request.uri, &request.headers);
    // By TLS, the browser has compared the host with the certificate.
    let may_be_rebound = listen.admin_tls.is_none();
    let scheme = if may_be_rebound { "http" } else { "https" };
    let refused = match &listen.admin_token {
        Some(token) if is_authorized(request, token) => return None,
        Some(_) => {
            let message = "the admin token is needed: Authorization: Bearer TOKEN";
            let mut reply = pages::error(StatusCode::UNAUTHORIZED, message);
            let challenge = HeaderValue::from_static(CHALLENGE);
            reply.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
            reply
        }
        None if may_be_rebound && cross_site::has_foreign_host(uri, headers) => {
            let message =
                "without `admin_token` in [listen], the host is an IP address or localhost";
            pages::error(StatusCode::FORBIDDEN, message)
        }
        None if cross_site::is_of_foreign_page(uri, headers, scheme) => {
            let message = "without `admin_token` in [listen], pages of other sites are refused";
            pages::error(StatusCode::FORBIDDEN, message)
        }
        None if request.method == Method::POST
            && is_action(uri.path())
            && cross_site::media_type(headers).as_deref() != Some("application/json") =>
        {
            let message = "without `admin_token` in [listen], a POST has Content-Type: application/json, even without a body";
            pages::error(StatusCode::UNSUPPORTED_MEDIA_TYPE, message)
        }
        None => return None,
    };
    Some(refused)
}

/// Returns true for the paths that answer POST.
fn is_action(path: &str) -> bool {
    matches!(path, "/api/reload" | "/api/cache/purge" | "/api/budgets/refresh" | "/api/telemetry")
        || writes::Page::of(path).is_some_and(writes::Page::is_action)
}

/// Answers with a page that is computed without waiting.
fn walked(gateway: &Gateway, request: &Parts, body: Option<&Bytes>) -> Reply {
    let path = request.uri.path();
    if path == "/api/cache/purge" {
        return match (&request.method, body) {
            (&Method::POST, Some(body)) => cache::purge(gateway, body),
            (&Method::POST, None) => pages::error(StatusCode::PAYLOAD_TOO_LARGE, NO_BODY),
            _ => only_post(),
        };
    }
    let query = request.uri.query().unwrap_or_default();
    if let Some(reply) = requests::answer(gateway, &request.method, path, query) {
        return reply;
    }
    let show: fn(&Gateway, &HeaderMap) -> Reply = match path {
        "/healthz" => |_, _| pages::text(StatusCode::OK, "ok"),
        "/readyz" => |gateway, _| pages::readiness(gateway),
        "/metrics" => |gateway, headers| pages::metrics(gateway, headers.get(header::ACCEPT)),
        "/api/budgets" => |gateway, _| pages::json(StatusCode::OK, &budgets::of(gateway)),
        "/api/cache" => |gateway, _| pages::json(StatusCode::OK, &cache::figures(gateway)),
        "/api/cache/advice" => |gateway, _| pages::json(StatusCode::OK, &advice::of(gateway)),
        "/api/clients" => |gateway, _| pages::json(StatusCode::OK, &clients::of(gateway)),
        _ => {
            let paths = "there is /, /healthz, /readyz, /metrics, /api/budgets, /api/budgets/refresh, /api/cache, /api/cache/advice, /api/cache/purge, /api/clients, /api/reload, /api/requests, /api/requests/ID, /api/telemetry, /api/writes, \
                /api/writes/ID, /api/writes/ID/cancel and /api/writes/ID/retry";
            return pages::error(StatusCode::NOT_FOUND, paths);
        }
    };
    if request.method != Method::GET && request.method != Method::HEAD {
        return only_get();
    }
    show(gateway, &request.headers)
}

fn not_made() -> Reply {
    pages::error(StatusCode::INTERNAL_SERVER_ERROR, "the page could not be made")
}

fn only_get() -> Reply {
    not_allowed("only GET and HEAD are answered here", "GET, HEAD")
}

fn only_post() -> Reply {
    not_allowed("only POST is answered here", "POST")
}

fn not_allowed(message: &str, allowed: &'static str) -> Reply {
    let mut reply = pages::error(StatusCode::METHOD_NOT_ALLOWED, message);
    reply.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    reply
}

/// Returns true if the request carries the admin token.
fn is_authorized(request: &Parts, token: &Secret) -> bool {
    let given = request.headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, given) = value.as_bytes().split_at_checked(b"Bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"Bearer ").then_some(given)
    });
    given.is_some_and(|given| is_token(given, token))
}

/// Compares with the admin token. Comparing hashes keeps the time independent of the token, its
/// length included.
fn is_token(given: &[u8], token: &Secret) -> bool {
    digest(given).ct_eq(&digest(token.expose_secret().as_bytes())).into()
}
