//! A gateway to which everything happens that a quiet demo lacks: refusals, asynchronous writes,
//! deliveries, reloads, tokens of an issuer, a refusing upstream.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;
use tempfile::TempDir;

use super::programs::{Gateway, KEY, Upstream};
use super::{ROOT, config, http};

/// Connections that one address may have.
const CONNECTIONS_MAX: usize = 16;
/// The key of RFC 7517, appendix A.1.
const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"1","alg":"ES256","use":"sig","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}"#;
/// `{"alg":"ES256","kid":"1"}`, `{"iss":"http://127.0.0.1:1"}` and no signature.
const FOREIGN_TOKEN: &str =
    "eyJhbGciOiJFUzI1NiIsImtpZCI6IjEifQ.eyJpc3MiOiJodHRwOi8vMTI3LjAuMC4xOjEifQ.AAAA";
/// The key of a client that may do nothing but ask who it is, by a rule in shadow mode.
const TRIED_KEY: &str = "weir_key_of_the_client_tried_in_tests";
/// The accounts beside `ada`, with their tokens in the seed world.
const OTHERS: [(&str, &str); 2] =
    [("ben", "emu_classic_ben_all_scopes"), ("cleo", "emu_classic_cleo_all_scopes")];

/// A situation that gives a panel its data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Situation {
    /// The config says it: a snapshot, a certificate, a key that ends, an issuer.
    Configured,
    KeylessRequest,
    /// More connections of one address than it may have.
    Flood,
    /// A list that the cache does not know. The upstream refuses one of the accounts once.
    NewList,
    ForeignToken,
    AsynchronousWrite,
    Delivery,
    Reload,
    /// A request that an access rule in shadow mode would refuse.
    Shadowed,
}

/// See the module.
pub struct Special {
    gateway: Gateway,
    _upstream: Upstream,
    /// Lists that were asked for.
    lists: AtomicU64,
    /// Times that an asynchronous write was due.
    writes: AtomicU64,
    _folder: TempDir,
}

impl Special {
    pub fn start() -> Self {
        let upstream = Upstream::start();
        let folder = tempfile::tempdir().expect("a folder for the snapshot");
        let server = format!("{ROOT}/tests/support/certificates/server.pem");
        let listen = format!(
            "https = {{ address = \"127.0.0.1:0\", cert = \"{server}\", key = \"{server}\" }}\n\
             connections_max_per_address = {CONNECTIONS_MAX}"
        );
        let sections = sections(&issuer(), &folder.path().join("cache"));
        let gateway = Gateway::start_with(&upstream.address, &listen, &sections);
        let refusal = json!({ "account": "cleo", "times": 1 });
        upstream.fault(&json!({ "fault": "secondary", "match": refusal }));
        Self {
            gateway,
            _upstream: upstream,
            lists: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            _folder: folder,
        }
    }

    /// The address of the admin listener.
    pub fn admin(&self) -> &String {
        &self.gateway.admin
    }

    /// Lets a situation happen once.
    pub fn happens(&self, situation: Situation) {
        let address = &self.gateway.address;
        let key = format!("Authorization: Bearer {KEY}\r\n");
        match situation {
            Situation::Configured => {}
            Situation::KeylessRequest => drop(http::get(address, "/user")),
            Situation::Flood => self.flood(),
            Situation::NewList => {
                // Only the first page of a list is tried as an empty one.
                let size = 1 + self.lists.fetch_add(1, Ordering::Relaxed) % 100;
                let line = format!("GET /repos/acme/widgets/labels?per_page={size}");
                http::exchange(address, &line, &key, "");
            }
            Situation::ForeignToken => {
                let foreign = format!("Authorization: Bearer {FOREIGN_TOKEN}\r\n");
                http::exchange(address, "GET /user", &foreign, "");
            }
            // The upstream takes 80 in a minute, and a test asks hundreds of times in a second.
            Situation::AsynchronousWrite => {
                if !self.writes.fetch_add(1, Ordering::Relaxed).is_multiple_of(16) {
                    return;
                }
                let line = "POST /repos/acme/widgets/issues/1/comments";
                let preference = "Prefer: respond-async\r\nContent-Type: application/json\r\n";
                let body = json!({ "body": "queued" }).to_string();
                http::exchange(address, line, &(key + preference), &body);
            }
            Situation::Delivery => {
                http::send(address, "POST /_weir/webhooks", &json!({ "action": "opened" }));
            }
            Situation::Reload => self.gateway.reload_same(),
            Situation::Shadowed => {
                let key = format!("Authorization: Bearer {TRIED_KEY}\r\n");
                http::exchange(address, "GET /repos/acme/widgets", &key, "");
            }
        }
    }

    fn flood(&self) {
        let connect = |_| TcpStream::connect(&self.gateway.address).ok();
        let mut open: Vec<_> = (0..=CONNECTIONS_MAX).filter_map(connect).collect();
        if let Some(last) = open.last_mut() {
            // Its end shows that the gateway has counted them.
            let _ = last.read(&mut [0]);
        }
    }
}

fn sections(issuer: &str, snapshot: &Path) -> String {
    let others: String = OTHERS.iter().map(|(name, token)| config::user(name, token)).collect();
    let snapshot = config::snapshot(snapshot);
    let zeros = "0".repeat(63);
    others
        + &format!(
            "[[clients]]\nname = \"leaving\"\nkeys = [{{ sha256 = \"{zeros}1\", expires = \"2099-01-31\" }}]\n\
             [[issuers]]\nname = \"actions\"\nurl = \"{issuer}\"\naudience = \"weir\"\njwks_url = \"{issuer}/keys\"\n"
        )
        + &config::client("tried", TRIED_KEY, "allow = [\"GET /user\"]\nbudget = { core = \"100/h\" }")
        + &config::section("shadow", "access = true")
        // Nobody listens there, and each export fails.
        + &config::section("telemetry", "otlp_endpoint = \"http://127.0.0.1:9\"")
        + &config::section("webhooks", "secret = { value = \"a-secret-of-deliveries\" }")
        + &config::section("writes", config::UNSPACED)
        + &config::section(
            "cache",
            &format!("predicted_etags = true\n{snapshot}\nsnapshot_interval = \"1s\""),
        )
}

/// The address of an issuer that publishes [`KEYS`] until the end of the test's process.
fn issuer() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let length = KEYS.len();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
            // A gateway that has ended reads nothing.
            let _ = stream.read(&mut [0; 4_096]);
            let _ = write!(stream, "{head}\r\nContent-Length: {length}\r\n\r\n{KEYS}");
        }
    });
    format!("http://{address}")
}
