//! `[upstream]`: the service behind the gateway.

use std::net::SocketAddr;
use std::time::Duration;

use super::proxy::Proxies;
use super::tls::{CaFile, CaRoots, CertificateFiles};
use crate::api::Dialect;
use crate::config::input::http_url::UpstreamUrl;
use crate::config::input::reader::{Choice, Reader};
use crate::config::input::scalars::duration_text;
use crate::config::printer::{Printer, list, text};

/// The section `[upstream]`.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Root of the API; a self-hosted one ends in `/api/v3`.
    pub url: UpstreamUrl,
    /// Address of GraphQL: derived from `url` unless set.
    pub graphql_url: UpstreamUrl,
    /// Address of uploads: derived from `url` unless set.
    pub uploads_url: UpstreamUrl,
    /// Names that the service uses for its headers and media types.
    pub dialect: Dialect,
    /// Certificate authorities to trust, PEM.
    pub ca_file: Option<CaFile>,
    /// The place of the system's authorities beside `ca_file`.
    pub ca_roots: CaRoots,
    /// The certificate that the gateway presents to the upstream, and its key.
    pub client_certificate: Option<CertificateFiles>,
    /// Proxies between the gateway and each address.
    pub proxies: Proxies,
    /// Name servers to ask instead of those of `/etc/resolv.conf`; usually empty.
    pub name_servers: Vec<SocketAddr>,
    /// Timeout of a connection: name, TCP and TLS together.
    pub connect_timeout: Duration,
    /// Timeout from the request to the head of its response.
    pub response_timeout: Duration,
    /// Timeout of a request over all its attempts, until an answer begins.
    pub total_timeout: Duration,
}

impl Choice for Dialect {
    const ALL: &'static [(&'static str, Self)] =
        &[("service", Self::Service), ("github", Self::Github)];
}

impl Upstream {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let url: Option<UpstreamUrl> = reader.required("url");
        let graphql_url = reader.optional("graphql_url").or_else(|| url.as_ref().map(graphql_url));
        let uploads_url = reader.optional("uploads_url").or_else(|| url.as_ref().map(uploads_url));
        let urls: Vec<_> = [&url, &graphql_url, &uploads_url].into_iter().flatten().collect();
        let proxies = Proxies::read(reader, &urls);
        let client_certificate = reader
            .if_set("client_certificate", |entry| entry.table(CertificateFiles::read_as_secret));
        if reader.is_set("ca_roots") && !reader.is_set("ca_file") {
            let accepted = "ca_roots beside ca_file; without both the system's authorities";
            reader.refuse::<()>("ca_roots", "without ca_file", accepted);
        }
        Some(Self {
            dialect: reader.or("dialect", Dialect::Service),
            ca_file: reader.optional("ca_file"),
            ca_roots: reader.or("ca_roots", CaRoots::default()),
            name_servers: reader.or("name_servers", Vec::new()),
            connect_timeout: reader.positive("connect_timeout", Duration::from_secs(5)),
            response_timeout: reader.positive("response_timeout", Duration::from_secs(30)),
            total_timeout: reader.positive("total_timeout", Duration::from_secs(60)),
            // Last, so that the other keys are read whatever this one is.
            client_certificate: client_certificate?,
            proxies: proxies?,
            url: url?,
            graphql_url: graphql_url?,
            uploads_url: uploads_url?,
        })
    }

    pub(crate) fn print(&self, printer: &mut Printer) {
        printer.section("upstream");
        printer.set("url", text(&self.url));
        printer.set("graphql_url", text(&self.graphql_url));
        printer.set("uploads_url", text(&self.uploads_url));
        printer.set("dialect", text(self.dialect.name()));
        printer.set_some("ca_file", self.ca_file.as_ref().map(|file| text(file.path().display())));
        printer.set_some("ca_roots", self.ca_file.as_ref().map(|_| text(self.ca_roots.name())));
        let certificate = self.client_certificate.as_ref();
        printer.set_some("client_certificate", certificate.map(CertificateFiles::printed));
        let urls = [
            ("url", &self.url),
            ("graphql_url", &self.graphql_url),
            ("uploads_url", &self.uploads_url),
        ];
        self.proxies.print(printer, &urls);
        printer.set("name_servers", list(self.name_servers.iter().map(text)));
        printer.set("connect_timeout", text(duration_text(self.connect_timeout)));
        printer.set("response_timeout", text(duration_text(self.response_timeout)));
        printer.set("total_timeout", text(duration_text(self.total_timeout)));
    }
}

/// Derives the address of GraphQL: beside the REST root, or `/api/graphql` of a self-hosted
/// service.
fn graphql_url(url: &UpstreamUrl) -> UpstreamUrl {
    let prefix = url.path_prefix();
    let path = prefix
        .strip_suffix("/api/v3")
        .map_or_else(|| format!("{prefix}/graphql"), |before| format!("{before}/api/graphql"));
    UpstreamUrl::new(url.scheme(), url.host().to_owned(), url.port(), path)
}

/// Derives the address of uploads: the host `uploads.` beside `api.`, else `/api/uploads` of a
/// self-hosted service.
fn uploads_url(url: &UpstreamUrl) -> UpstreamUrl {
    let prefix = url.path_prefix();
    let (host, path) = match (prefix.strip_suffix("/api/v3"), url.host().strip_prefix("api.")) {
        (Some(before), _) => (url.host().to_owned(), format!("{before}/api/uploads")),
        (None, Some(domain)) => (format!("uploads.{domain}"), prefix.to_owned()),
        (None, None) => (url.host().to_owned(), format!("{prefix}/api/uploads")),
    };
    UpstreamUrl::new(url.scheme(), host, url.port(), path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::input::http_url::Scheme;

    fn derived(scheme: Scheme, host: &str, port: u16, path: &str) -> (String, String) {
        let url = UpstreamUrl::new(scheme, host.to_owned(), port, path.to_owned());
        (graphql_url(&url).to_string(), uploads_url(&url).to_string())
    }

    #[test]
    fn graphql_and_uploads_follow_from_the_api_host() {
        let (graphql, uploads) = derived(Scheme::Https, "api.example.com", 443, "");
        assert_eq!(
            (graphql.as_str(), uploads.as_str()),
            ("https://api.example.com/graphql", "https://uploads.example.com")
        );
    }

    #[test]
    fn uploads_of_another_host_are_below_api_uploads() {
        let (_, uploads) = derived(Scheme::Http, "127.0.0.1", 8090, "");
        assert_eq!(uploads, "http://127.0.0.1:8090/api/uploads");
    }

    #[test]
    fn self_hosted_graphql_and_uploads_are_beside_api_v3() {
        let (graphql, uploads) = derived(Scheme::Https, "api.code.corp", 8443, "/api/v3");
        assert_eq!(
            (graphql.as_str(), uploads.as_str()),
            ("https://api.code.corp:8443/api/graphql", "https://api.code.corp:8443/api/uploads")
        );
    }
}
