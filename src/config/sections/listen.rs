//! `[listen]`: addresses and timeouts of the listeners.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use crate::config::input::http_url::HttpUrl;
use crate::config::input::reader::Reader;
use crate::config::input::scalars::{Size, duration_text, size_text};
use crate::config::input::secret::Secret;
use crate::config::printer::{Printer, inline, list, text};
use crate::config::sections::tls::{CaFile, Https, ServerTls};
use crate::decision::body_pace::BodyPace;

/// Default of `http` (SPECIFICATION, "Configuration").
const HTTP_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// A tenth of a slow mobile line.
const BODY_RATE_MIN: Size = Size(8 * 1024);
/// Time for 64 MiB at 12 KiB/s, or for two GiB at 300 KiB/s.
const BODY_MAX_TIME: Duration = Duration::from_hours(2);
/// Thousands of ordinary bodies, or twenty-five of the largest that are queued by default.
const BODY_MEMORY: Size = Size::mib(256);
/// Default of `connections_max`: ten connections of each of a thousand clients.
const CONNECTIONS_MAX: u32 = 10_000;
/// Default of `answer_rate_min`, per second: twice a peer that took 64 KiB in 30 s and so lived for
/// an hour, and far below any honest link.
const ANSWER_RATE_MIN: Size = Size::kib(4);

/// Bytes of a socket's path: the system's, less the zero at its end (unix(7)).
const SOCKET_PATH_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// The section `[listen]`.
#[derive(Clone, Debug)]
pub struct Listen {
    /// Addresses for HTTP/1.1 and h2c; empty only when another listener exists.
    pub http: Vec<SocketAddr>,
    /// Address and certificates for HTTP/1.1 and HTTP/2 over TLS.
    pub https: Option<Https>,
    /// Path of a Unix socket for plain HTTP.
    pub unix: Option<PathBuf>,
    /// Path of the socket by which a successor takes over the listeners.
    pub takeover: Option<PathBuf>,
    /// Admin listener; on loopback unless a token guards it.
    pub admin: Option<SocketAddr>,
    /// TLS of the admin listener; `None`: plain HTTP.
    pub admin_tls: Option<ServerTls>,
    /// Token that the admin listener requires.
    pub admin_token: Option<Secret>,
    /// The gateway's own address in links and bodies; `None`: scheme and Host of each request.
    pub public_url: Option<HttpUrl>,
    /// Timeout of a whole request head.
    pub header_timeout: Duration,
    /// Longest pause between two reads of a request body, and between two writes of an answer.
    pub body_timeout: Duration,
    /// Bytes per second that a request body must keep on average, after the first `body_timeout`.
    pub body_rate_min: u64,
    /// Longest time of a whole request body.
    pub body_max_time: Duration,
    /// Bytes of all held request bodies together.
    pub body_memory: u64,
    /// Bytes per second that a client takes of an answer at least, within `body_timeout`.
    pub answer_rate_min: u64,
    /// Longest idle time of a kept-alive connection.
    pub idle_timeout: Duration,
    /// Open connections of all listeners but the admin listener.
    pub connections_max: u32,
    /// Open connections of one address, or of one network of IPv6; `None`: any number.
    pub connections_max_per_address: Option<NonZeroU32>,
    /// Networks of proxies that name the addresses of their clients.
    pub trusted_proxies: Vec<IpNet>,
    /// True if connections of trusted proxies begin with a header of the PROXY protocol.
    pub proxy_protocol: bool,
    /// Time for requests in flight to finish after SIGTERM.
    pub drain: Duration,
    /// Time between SIGTERM, which ends readiness, and the drain.
    pub drain_delay: Duration,
}

impl Listen {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Self {
        let listen = Self {
            http: reader.or("http", vec![HTTP_DEFAULT]),
            https: reader.if_set("https", Https::read).flatten(),
            unix: reader.optional("unix"),
            takeover: reader.optional("takeover"),
            admin: reader.optional("admin"),
            admin_tls: reader.if_set("admin_tls", |entry| entry.table(ServerTls::read)).flatten(),
            admin_token: reader.optional("admin_token"),
            public_url: reader.optional("public_url"),
            header_timeout: reader.positive("header_timeout", Duration::from_secs(10)),
            body_timeout: reader.positive("body_timeout", Duration::from_secs(30)),
            body_rate_min: reader.positive("body_rate_min", BODY_RATE_MIN).0,
            body_max_time: reader.positive("body_max_time", BODY_MAX_TIME),
            body_memory: reader.positive("body_memory", BODY_MEMORY).0,
            answer_rate_min: reader.positive("answer_rate_min", ANSWER_RATE_MIN).0,
            idle_timeout: reader.positive("idle_timeout", Duration::from_mins(1)),
            connections_max: reader.positive("connections_max", CONNECTIONS_MAX),
            connections_max_per_address: reader.optional("connections_max_per_address"),
            trusted_proxies: reader.or("trusted_proxies", Vec::new()),
            proxy_protocol: reader.or("proxy_protocol", false),
            drain: reader.or("drain", Duration::from_secs(30)),
            drain_delay: reader.or("drain_delay", Duration::ZERO),
        };
        listen.check_addresses(reader);
        if listen.proxy_protocol && listen.trusted_proxies.is_empty() {
            reader.refuse::<()>(
                "proxy_protocol",
                "there are no trusted_proxies, and nobody else may name the address of a client",
                "true together with trusted_proxies, or false",
            );
        }
        listen
    }

    /// True if a client's certificate is enough for the admin listener.
    pub(crate) fn has_clients_as_administrators(&self) -> bool {
        let of_clients = self.https.as_ref().and_then(|https| https.tls.client_ca.as_ref());
        let (Some(admin), Some(of_clients)) = (&self.admin_tls, of_clients) else { return false };
        let mut shared = admin.client_ca.iter().flat_map(CaFile::certificates);
        admin.requires_clients()
            && self.admin_token.is_none()
            && shared.any(|authority| of_clients.certificates().contains(authority))
    }

    /// Bounds of the time that a request body may take.
    pub(crate) fn body_pace(&self) -> BodyPace {
        BodyPace {
            pause_max: self.body_timeout,
            rate_min: self.body_rate_min,
            total_max: self.body_max_time,
        }
    }

    fn check_addresses(&self, reader: &Reader<'_>) {
        if self.http.is_empty() && !reader.is_set("unix") && !reader.is_set("https") {
            reader.refuse::<()>(
                "http",
                "no listener is left",
                "at least one address in http, or https, or unix",
            );
        }
        if self.takeover.is_some() && self.takeover == self.unix {
            reader.refuse::<()>(
                "takeover",
                "the same path as unix",
                "a path of its own, to which only this user can connect",
            );
        }
        for (key, path) in [("unix", &self.unix), ("takeover", &self.takeover)] {
            if path.as_ref().is_some_and(|path| path.as_os_str().len() > SOCKET_PATH_MAX) {
                let problem = format!("longer than the {SOCKET_PATH_MAX} bytes of a socket's path");
                reader.refuse::<()>(key, problem, "a shorter path");
            }
        }
        let mut taken: Vec<SocketAddr> = Vec::new();
        let of_http = self.http.iter().map(|address| ("http", *address));
        let of_https = self.https.iter().map(|https| ("https", https.address));
        let of_admin = self.admin.iter().map(|address| ("admin", *address));
        for (key, address) in of_http.chain(of_https).chain(of_admin) {
            // Port 0 means any free port, a different one each time.
            let overlapping =
                taken.iter().find(|other| address.port() != 0 && overlap(**other, address));
            if let Some(other) = overlapping {
                let problem = if *other == address {
                    format!("duplicate address {address}")
                } else {
                    format!("{address} cannot be taken beside {other}")
                };
                reader.refuse::<()>(key, problem, "an address for each listener");
            }
            taken.push(address);
        }
        if self.admin_tls.is_some() && self.admin.is_none() {
            reader.refuse::<()>("admin_tls", "there is no admin listener", "admin, an address");
        }
        let is_guarded = reader.is_set("admin_token")
            || self.admin_tls.as_ref().is_some_and(ServerTls::requires_clients);
        // Clients of the admin listener can read the quota ledger and purge the cache.
        if let Some(admin) = self.admin
            && !admin.ip().to_canonical().is_loopback()
            && !is_guarded
        {
            let problem =
                format!("{admin} can be reached from other machines, and there is no admin_token");
            reader.refuse::<()>(
                "admin",
                problem,
                "a loopback address such as \"127.0.0.1:9090\", or any with admin_token",
            );
        }
    }

    pub(crate) fn print(&self, printer: &mut Printer) {
        printer.section("listen");
        printer.set("http", list(self.http.iter().map(text)));
        if let Some(https) = &self.https {
            https.print(printer);
        }
        printer.set_some("unix", self.unix.as_ref().map(|unix| text(unix.display())));
        printer.set_some("takeover", self.takeover.as_ref().map(|path| text(path.display())));
        printer.set_some("admin", self.admin.map(text));
        printer.set_some("admin_tls", self.admin_tls.as_ref().map(|tls| inline(&tls.printed())));
        printer.set_some("admin_token", self.admin_token.as_ref().map(Secret::printed));
        printer.set_some("public_url", self.public_url.as_ref().map(text));
        printer.set("header_timeout", text(duration_text(self.header_timeout)));
        printer.set("body_timeout", text(duration_text(self.body_timeout)));
        printer.set("body_rate_min", text(size_text(self.body_rate_min)));
        printer.set("body_max_time", text(duration_text(self.body_max_time)));
        printer.set("body_memory", text(size_text(self.body_memory)));
        printer.set("answer_rate_min", text(size_text(self.answer_rate_min)));
        printer.set("idle_timeout", text(duration_text(self.idle_timeout)));
        printer.set("connections_max", self.connections_max.to_string());
        printer.set_some(
            "connections_max_per_address",
            self.connections_max_per_address.map(|max| max.to_string()),
        );
        if !self.trusted_proxies.is_empty() {
            printer.set("trusted_proxies", list(self.trusted_proxies.iter().map(text)));
        }
        printer.set("proxy_protocol", self.proxy_protocol.to_string());
        printer.set("drain", text(duration_text(self.drain)));
        printer.set("drain_delay", text(duration_text(self.drain_delay)));
    }
}
/// Returns true if the system lets only one listener have both addresses: all addresses of a family
/// include each of its own.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port()
        && one.is_ipv4() == other.is_ipv4()
        && (one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified())
}
