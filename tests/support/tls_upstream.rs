//! An upstream by TLS with a certificate of `certificates/`, which answers each request with the
//! same JSON. Its threads block, because a TLS server then needs no further dependency.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, Stream, SupportedProtocolVersion};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"secure\":true}";

/// The path of a file of `certificates/`.
pub fn certificate_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/certificates").join(name)
}

/// Starts an upstream that presents the certificate of this file, and returns its address. The
/// threads end with the process.
pub fn start(file: &str) -> SocketAddr {
    start_with(file, None, rustls::ALL_VERSIONS)
}

/// The same with these versions of TLS, for clients with a certificate of `authority`.
pub fn start_for_clients_of(
    file: &str,
    authority: &str,
    versions: &[&'static SupportedProtocolVersion],
) -> SocketAddr {
    start_with(file, Some(authority), versions)
}

fn start_with(
    file: &str,
    authority: Option<&str>,
    versions: &[&'static SupportedProtocolVersion],
) -> SocketAddr {
    let file = certificate_file(file);
    let chain = vec![CertificateDer::from_pem_file(&file).unwrap()];
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .unwrap();
    let builder = match authority {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            let authority = CertificateDer::from_pem_file(certificate_file(authority)).unwrap();
            roots.add(authority).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let config =
        builder.with_single_cert(chain, PrivateKeyDer::from_pem_file(&file).unwrap()).unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let config = Arc::clone(&config);
            std::thread::spawn(move || serve(stream, config));
        }
    });
    address
}

/// Answers requests without a body until the client leaves or refuses the certificate.
fn serve(mut tcp: TcpStream, config: Arc<ServerConfig>) {
    let mut tls = ServerConnection::new(config).unwrap();
    let mut stream = Stream::new(&mut tls, &mut tcp);
    let (mut head, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        head.extend_from_slice(&piece[..count]);
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            if stream.write_all(ANSWER).is_err() {
                return;
            }
        }
    }
    // A close with unread bytes would be a reset, which hides an alert.
    let _ = tcp.shutdown(Shutdown::Write);
    let _ = tcp.read_to_end(&mut Vec::new());
}
