//! Questions about names: the hosts file, then the name servers, with the age that their records
//! may reach.
//!
//! The system's own resolver would name no age, and it blocks a thread. Left out: remembering an
//! answer, and using an old one (`resolve`).

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use hickory_resolver::{Hosts, TokioResolver};
use tokio::time::timeout;

/// The age of an answer of the hosts file, which has none, and of an incomplete one.
const AGE_WITHOUT_RECORDS: Duration = Duration::from_secs(30);
/// The time for the addresses of the other family, once those of one are known. RFC 8305 §3 has 50
/// ms, but adds late ones to the attempts under way; here they count at the next question.
const OTHER_FAMILY: Duration = Duration::from_millis(500);
/// The longest wait for a name server, so that two fit into the usual `connect_timeout`.
const SERVER_TIMEOUT_MAX: Duration = Duration::from_secs(2);
/// The most addresses of a name. Chosen here: 250 ms apart, these begin within four seconds.
const ADDRESSES_MAX: usize = 16;
/// The most name servers that a message lists.
const SERVERS_SHOWN: usize = 3;

/// Asks about names.
pub struct Dns {
    /// The servers to ask; empty: those of `/etc/resolv.conf`.
    servers: Vec<SocketAddr>,
}

/// The addresses of a name.
#[derive(Debug)]
pub struct Found {
    /// Never empty.
    pub addresses: Vec<IpAddr>,
    /// The age that they may reach.
    pub age: Duration,
}

/// The reason why a name has no addresses.
#[derive(Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// The answer is that there are none.
    Absent(&'static str),
    /// There is no answer.
    Failed(String),
}

/// The files of the system that take part.
struct System {
    config: ResolverConfig,
    options: ResolverOpts,
    hosts: Hosts,
}

impl Dns {
    pub fn new(servers: &[SocketAddr]) -> Self {
        Self { servers: servers.to_vec() }
    }

    /// True if these servers are asked.
    pub fn asks(&self, servers: &[SocketAddr]) -> bool {
        self.servers == servers
    }

    /// Asks for both families. The files are read each time: a changed one counts at once.
    pub async fn ask(&self, host: &str) -> Result<Found, Unresolved> {
        let failed = |problem: String| Unresolved::Failed(problem);
        let name = Name::from_ascii(host).map_err(|_| Unresolved::Absent("is no name of DNS"))?;
        let servers = self.servers.clone();
        let system = tokio::task::spawn_blocking(move || System::read(&servers));
        let System { config, options, hosts } =
            system.await.map_err(|error| failed(error.to_string()))?.map_err(failed)?;
        if let Some(found) = of_hosts(&hosts, &name) {
            return Ok(found);
        }
        let asked = shown(&config);
        let mut builder =
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        *builder.options_mut() = options;
        let resolver = builder.build().map_err(|error| failed(error.to_string()))?;
        let v4 = resolver.lookup(name.clone(), RecordType::A);
        let v6 = resolver.lookup(name, RecordType::AAAA);
        let (one, other) = both(v4, v6).await;
        combined(read(one, &asked), other.map(|other| read(other, &asked)))
    }
}

impl System {
    fn read(servers: &[SocketAddr]) -> Result<Self, String> {
        let (config, mut options) = if servers.is_empty() {
            read_system_conf().map_err(|error| format!("/etc/resolv.conf: {error}"))?
        } else {
            (
                ResolverConfig::from_parts(None, Vec::new(), of_servers(servers)),
                ResolverOpts::default(),
            )
        };
        options.timeout = options.timeout.min(SERVER_TIMEOUT_MAX);
        // Aliases have ages too.
        options.preserve_intermediates = true;
        options.use_hosts_file = ResolveHosts::Never;
        Ok(Self { config, options, hosts: Hosts::from_system().unwrap_or_default() })
    }
}

fn of_servers(servers: &[SocketAddr]) -> Vec<NameServerConfig> {
    let at = |mut connection: ConnectionConfig, port| {
        connection.port = port;
        connection
    };
    let server = |server: &SocketAddr| {
        let (udp, tcp) = (ConnectionConfig::udp(), ConnectionConfig::tcp());
        let connections = vec![at(udp, server.port()), at(tcp, server.port())];
        NameServerConfig::new(server.ip(), true, connections)
    };
    servers.iter().map(server).collect()
}

fn shown(config: &ResolverConfig) -> String {
    let server = |server: &NameServerConfig| {
        let port = server.connections.first().map_or(53, |connection| connection.port);
        SocketAddr::new(server.ip, port).to_string()
    };
    let servers: Vec<_> = config.name_servers().iter().take(SERVERS_SHOWN).map(server).collect();
    servers.join(", ")
}

/// The addresses in the hosts file. A name in it is not asked about elsewhere.
fn of_hosts(hosts: &Hosts, name: &Name) -> Option<Found> {
    let of = |kind| hosts.lookup_static_host(&Query::query(name.clone(), kind));
    let found = [RecordType::A, RecordType::AAAA].into_iter().filter_map(of);
    let addresses: Vec<_> = found.flat_map(|lookup| addresses_of(&lookup)).collect();
    (!addresses.is_empty()).then_some(Found { addresses, age: AGE_WITHOUT_RECORDS })
}

fn addresses_of(lookup: &Lookup) -> Vec<IpAddr> {
    let addresses = lookup.answers().iter().filter_map(|record| record.data.ip_addr());
    addresses.take(ADDRESSES_MAX).collect()
}

/// Waits for both; once one has come with addresses, only a little longer for the other.
async fn both<E>(
    one: impl Future<Output = Result<Lookup, E>>,
    other: impl Future<Output = Result<Lookup, E>>,
) -> (Result<Lookup, E>, Option<Result<Lookup, E>>) {
    match select(pin!(one), pin!(other)).await {
        Either::Left((first, second)) => later(first, second).await,
        Either::Right((first, second)) => later(first, second).await,
    }
}

async fn later<E>(
    first: Result<Lookup, E>,
    second: impl Future<Output = Result<Lookup, E>>,
) -> (Result<Lookup, E>, Option<Result<Lookup, E>>) {
    let is_usable = first.as_ref().is_ok_and(|lookup| !addresses_of(lookup).is_empty());
    let second =
        if is_usable { timeout(OTHER_FAMILY, second).await.ok() } else { Some(second.await) };
    (first, second)
}

fn read(answer: Result<Lookup, NetError>, asked: &str) -> Result<Found, Unresolved> {
    let absent = Unresolved::Absent("has no address");
    match answer {
        Ok(lookup) => {
            let addresses = addresses_of(&lookup);
            if addresses.is_empty() {
                return Err(absent);
            }
            let age = lookup.answers().iter().map(|record| record.ttl).min().unwrap_or(0);
            Ok(Found { addresses, age: Duration::from_secs(age.into()) })
        }
        Err(NetError::Dns(DnsError::NoRecordsFound(none))) => Err(match none.response_code {
            ResponseCode::NXDomain => Unresolved::Absent("does not exist in DNS"),
            ResponseCode::NoError => absent,
            code => Unresolved::Failed(format!("the name server {asked} answered: {code}")),
        }),
        Err(NetError::Dns(DnsError::ResponseCode(code))) => {
            Err(Unresolved::Failed(format!("the name server {asked} answered: {code}")))
        }
        Err(NetError::Timeout | NetError::NoConnections) => {
            Err(Unresolved::Failed(format!("no answer from the name server {asked}")))
        }
        Err(other) => Err(Unresolved::Failed(format!("the name server {asked}: {other}"))),
    }
}

/// Joins the answers for the two families; `None`: one did not come in time.
fn combined(
    one: Result<Found, Unresolved>,
    other: Option<Result<Found, Unresolved>>,
) -> Result<Found, Unresolved> {
    match (one, other) {
        (Ok(mut one), Some(Ok(other))) => {
            one.addresses.extend(other.addresses);
            one.addresses.truncate(ADDRESSES_MAX);
            Ok(Found { age: one.age.min(other.age), ..one })
        }
        (Ok(found), Some(Err(Unresolved::Absent(_))))
        | (Err(Unresolved::Absent(_)), Some(Ok(found))) => Ok(found),
        // The other family may have addresses too.
        (Ok(found), Some(Err(Unresolved::Failed(_))) | None)
        | (Err(Unresolved::Failed(_)), Some(Ok(found))) => {
            Ok(Found { age: found.age.min(AGE_WITHOUT_RECORDS), ..found })
        }
        (Err(Unresolved::Absent(_)), Some(Err(failed @ Unresolved::Failed(_)))) => Err(failed),
        (Err(problem), _) => Err(problem),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, seconds: u64) -> Found {
        let addresses = vec![text.parse().unwrap()];
        Found { addresses, age: Duration::from_secs(seconds) }
    }

    fn seconds(found: Result<Found, Unresolved>) -> (usize, u64) {
        let found = found.unwrap();
        (found.addresses.len(), found.age.as_secs())
    }

    #[test]
    fn the_lesser_age_of_both_families_counts() {
        let both = combined(Ok(found("192.0.2.1", 60)), Some(Ok(found("2001:db8::1", 20))));
        assert_eq!(seconds(both), (2, 20));
    }

    #[test]
    fn one_family_is_enough_but_not_for_long_if_the_other_failed() {
        let absent = || Err(Unresolved::Absent("has no address"));
        let failed = || Err(Unresolved::Failed("no answer".to_owned()));
        for (one, other, expected) in [
            (Ok(found("192.0.2.1", 300)), Some(absent()), (1, 300)),
            (absent(), Some(Ok(found("192.0.2.1", 300))), (1, 300)),
            (Ok(found("192.0.2.1", 300)), None, (1, 30)),
            (failed(), Some(Ok(found("192.0.2.1", 300))), (1, 30)),
        ] {
            assert_eq!(seconds(combined(one, other)), expected);
        }
    }

    #[test]
    fn a_failure_is_no_proof_that_a_name_has_no_address() {
        let absent = || Err(Unresolved::Absent("has no address"));
        let failed = || Err(Unresolved::Failed("no answer".to_owned()));
        for (one, other) in [(absent(), failed()), (failed(), absent())] {
            let problem = combined(one, Some(other)).unwrap_err();
            assert_eq!(problem, Unresolved::Failed("no answer".to_owned()));
        }
        assert!(matches!(combined(absent(), Some(absent())), Err(Unresolved::Absent(_))));
    }

    #[test]
    fn the_hosts_file_answers_for_both_families() {
        let mut hosts = Hosts::default();
        hosts.read_hosts_conf("192.0.2.7 code.corp code\n::1 code.corp".as_bytes()).unwrap();
        let found = |name: &str| of_hosts(&hosts, &Name::from_ascii(name).unwrap());
        assert_eq!(found("code.corp").unwrap().addresses.len(), 2);
        assert_eq!(found("code").unwrap().addresses, ["192.0.2.7".parse::<IpAddr>().unwrap()]);
        assert!(found("other.corp").is_none());
    }
}
