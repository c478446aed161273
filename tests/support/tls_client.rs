//! A client by TLS of the gateway's own listeners. It blocks, because a TLS client then needs no
//! further dependency.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ALL_VERSIONS, ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    SupportedProtocolVersion,
};

use super::KEY;
use super::tls_upstream::certificate_file;

pub type Secured = StreamOwned<ClientConnection, TcpStream>;

/// A pause of a read that is not answered, as a failure and not for ever.
pub const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// A client without a certificate that offers these protocols.
pub fn client(protocols: &[&[u8]]) -> Arc<ClientConfig> {
    client_of(ALL_VERSIONS, protocols)
}

/// The same with these versions of TLS alone.
pub fn client_of(
    versions: &[&'static SupportedProtocolVersion],
    protocols: &[&[u8]],
) -> Arc<ClientConfig> {
    client_with(versions, protocols, None)
}

/// The same with the certificate and key of this file.
pub fn client_with(
    versions: &[&'static SupportedProtocolVersion],
    protocols: &[&[u8]],
    certificate: Option<&str>,
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate_file("authority.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match certificate.map(certificate_file) {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let chain = vec![CertificateDer::from_pem_file(&file).unwrap()];
            let key = PrivateKeyDer::from_pem_file(&file).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Arc::new(config)
}

/// Connects to this name, and makes the handshake.
pub fn connect(config: &Arc<ClientConfig>, at: SocketAddr, name: &str) -> std::io::Result<Secured> {
    let tcp = TcpStream::connect(at)?;
    tcp.set_read_timeout(Some(READ_TIMEOUT))?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let tls = ClientConnection::new(Arc::clone(config), name).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(tls, tcp);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

/// Sends a GET with the key of the test's client, and reads its answer.
pub fn get(stream: &mut Secured, path: &str) -> String {
    get_with(stream, path, &format!("Authorization: Bearer {KEY}\r\n")).unwrap()
}

/// Sends a GET with these header lines, and reads its answer.
pub fn get_with(stream: &mut Secured, path: &str, headers: &str) -> std::io::Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: weir.internal:8443\r\n{headers}\r\n");
    stream.write_all(request.as_bytes())?;
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&answer).to_lowercase();
        let length = text.split_once("content-length: ").and_then(|(_, rest)| {
            rest.split_once("\r\n").and_then(|(length, _)| length.parse::<usize>().ok())
        });
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body.len());
        if body.zip(length).is_some_and(|(body, length)| body >= length) {
            return String::from_utf8(answer).map_err(std::io::Error::other);
        }
        let count = stream.read(&mut piece)?;
        if count == 0 {
            return Err(std::io::Error::other(format!("the connection ended: {text}")));
        }
        answer.extend_from_slice(&piece[..count]);
    }
}

/// Runs a blocking client beside the gateway.
pub async fn blocking<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(act).await.unwrap()
}
