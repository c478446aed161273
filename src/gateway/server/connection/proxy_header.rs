//! The header of the PROXY protocol, versions 1 and 2, before anything else on a connection of a
//! trusted proxy. Its TLVs are skipped.

use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;

use pingora::protocols::l4::socket::SocketAddr as PeerAddress;
use pingora::protocols::l4::stream::Stream;
use pingora::protocols::{GetSocketDigest as _, SocketDigest};
use proxy_header::{Error, ParseConfig, ProxyHeader};
use tokio::io::AsyncReadExt as _;

/// The longest header. Chosen here: version 2 has at most 232 bytes of addresses, and proxies send
/// some hundred bytes of TLVs.
const HEADER_BYTES_MAX: usize = 2 * 1024;
/// The longest line of version 1, by its specification. The parser alone would take a longer one
/// that comes at once.
const LINE_BYTES_MAX: usize = 107;

/// A connection that does not begin with a header, or ends in it.
#[derive(Debug, PartialEq, Eq)]
pub struct NoHeader;

/// Reads the header and leaves what follows on the stream. The address that it names is that of the
/// stream's other end from then on. Returns false if it names none: the proxy speaks for itself,
/// such as in a health check, or for a client without an IP address.
pub async fn read(stream: &mut Stream) -> Result<bool, NoHeader> {
    let mut read = Vec::with_capacity(256);
    let config = ParseConfig { include_tlvs: false, allow_v1: true, allow_v2: true };
    loop {
        if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
            return Err(NoHeader);
        }
        match ProxyHeader::parse(&read, config) {
            Ok((_, length)) if length > bytes_max(&read) => return Err(NoHeader),
            Ok((_, length)) if has_odd_ports(&read[..length]) => return Err(NoHeader),
            Ok((header, length)) => {
                let client = header.proxied_address().map(|address| address.source);
                stream.rewind(&read[length..]);
                if let Some(client) = client {
                    come_from(stream, client);
                }
                return Ok(client.is_some());
            }
            Err(Error::BufferTooShort) if read.len() < HEADER_BYTES_MAX => {}
            Err(_) => return Err(NoHeader),
        }
    }
}

/// The longest header that begins so.
fn bytes_max(header: &[u8]) -> usize {
    if header.first() == Some(&b'P') { LINE_BYTES_MAX } else { HEADER_BYTES_MAX }
}

/// True for version 1 with a port that is no plain decimal number: the specification permits
/// neither a sign nor heading zeros, and the parser takes both.
fn has_odd_ports(header: &[u8]) -> bool {
    let Some(line) = header.strip_prefix(b"PROXY TCP") else { return false };
    let mut ports = line.trim_ascii_end().rsplit(|byte| *byte == b' ').take(2);
    ports.any(|port| port.starts_with(b"+") || (port.len() > 1 && port.starts_with(b"0")))
}

fn come_from(stream: &mut Stream, client: SocketAddr) {
    let digest = SocketDigest::from_raw_fd(stream.as_raw_fd());
    // A new digest has no address yet.
    let _ = digest.peer_addr.set(Some(PeerAddress::Inet(client)));
    stream.set_socket_digest(digest);
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::gateway::server::connection::client_address;

    const REST: &[u8] = b"GET / HTTP/1.1\r\n\r\n";

    /// The named client and the bytes that follow, when the bytes come in pieces of this size.
    async fn read_in_pieces(bytes: &[u8], piece: usize) -> Result<Option<String>, NoHeader> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.set_nodelay(true).unwrap();
        let mut stream = Stream::from(listener.accept().await.unwrap().0);
        stream.set_socket_digest(SocketDigest::from_raw_fd(stream.as_raw_fd()));
        let bytes = [bytes, REST].concat();
        let sending = async move {
            for some in bytes.chunks(piece) {
                // A refused connection may be closed meanwhile.
                let _ = client.write_all(some).await;
                tokio::task::yield_now().await;
            }
        };
        let reading = async move {
            let is_named = read(&mut stream).await?;
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.unwrap();
            assert_eq!(rest, REST);
            let stream: pingora::protocols::Stream = Box::new(stream);
            Ok(client_address(&stream).filter(|_| is_named).map(|client| client.to_string()))
        };
        tokio::join!(sending, reading).1
    }

    async fn read_all(bytes: &[u8]) -> Result<Option<String>, NoHeader> {
        let whole = read_in_pieces(bytes, usize::MAX).await;
        for piece in [1, 7] {
            assert_eq!(read_in_pieces(bytes, piece).await, whole, "{piece}");
        }
        whole
    }

    fn version_2(command: u8, family: u8, addresses: &[u8], tlvs: &[u8]) -> Vec<u8> {
        let length = u16::try_from(addresses.len() + tlvs.len()).unwrap().to_be_bytes();
        let begin = &b"\r\n\r\n\0\r\nQUIT\n"[..];
        [begin, &[command, family], &length[..], addresses, tlvs].concat()
    }

    #[tokio::test]
    async fn both_versions_name_the_client() {
        let v4 = [192, 0, 2, 7, 10, 0, 0, 1, 0x12, 0x34, 0x1f, 0x90];
        let client: [u8; 16] = "2001:db8::7".parse::<std::net::Ipv6Addr>().unwrap().octets();
        let v6 = [&client[..], &[0; 16], &[0x12, 0x34, 0x1f, 0x90]].concat();
        for (bytes, named) in [
            (b"PROXY TCP4 192.0.2.7 10.0.0.1 4660 8080\r\n".to_vec(), Some("192.0.2.7")),
            (b"PROXY TCP6 2001:db8::7 ::1 4660 8080\r\n".to_vec(), Some("2001:db8::7")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n".to_vec(), None),
            (version_2(0x21, 0x11, &v4, b""), Some("192.0.2.7")),
            (version_2(0x21, 0x11, &v4, &[4, 0, 100].repeat(300)), Some("192.0.2.7")),
            (version_2(0x21, 0x21, &v6, b""), Some("2001:db8::7")),
            (version_2(0x20, 0x00, b"", b""), None),
            (version_2(0x20, 0x11, &v4, b""), None),
            (version_2(0x21, 0x00, b"", b""), None),
            (version_2(0x21, 0x31, &[0; 216], b""), None),
        ] {
            let read = read_all(&bytes).await;
            assert_eq!(read, Ok(named.map(str::to_owned)), "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn other_beginnings_are_refused() {
        let tlvs = vec![0; HEADER_BYTES_MAX];
        for bytes in [
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 10.0.0.1 4660\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.999 10.0.0.1 4660 8080\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 10.0.0.1 +4660 8080\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 10.0.0.1 4660 +1\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 10.0.0.1 04660 8080\r\n".to_vec(),
            [b"PROXY UNKNOWN ".to_vec(), vec![b'x'; 200]].concat(),
            version_2(0x31, 0x11, &[0; 12], b""),
            version_2(0x21, 0x11, &[0; 3], b""),
            version_2(0x21, 0x11, &[0; 12], &tlvs),
        ] {
            assert_eq!(read_all(&bytes).await, Err(NoHeader), "{bytes:?}");
        }
    }
}
