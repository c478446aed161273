//! The offer of TLS as a scanner sees it: versions and ciphers of a handshake, one by one.
//! The list is Mozilla's "intermediate" for a server (SPECIFICATION, "Connections").

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use rustls::version::{TLS12, TLS13};

use crate::support::tls_client::{Secured, blocking, client_of, connect, get_with};
use crate::support::tls_upstream::certificate_file;
use crate::support::{KEY, Setup};

const REPOSITORY: &str = "/repos/acme/widgets";
const ISSUES: &str = "/repos/acme/widgets/issues";
/// TLS 1.3 has these three alone (RFC 8446 §B.4).
const OF_TLS13: [u16; 3] = [0x1301, 0x1302, 0x1303];
/// With forward secrecy and authenticated encryption, for a certificate with an ECDSA key.
const GOOD: [u16; 3] = [0xc02b, 0xc02c, 0xcca9];
/// Without one of both, or weaker still: null, export, RC4, 3DES, CBC, static RSA, anonymous.
const BAD: [u16; 26] = [
    0x0000, 0x0001, 0x0002, 0x0003, 0x0004, 0x0005, 0x000a, 0x0018, 0x001b, 0x002f, 0x0033, 0x0034,
    0x0035, 0x0039, 0x003c, 0x003d, 0x0067, 0x009c, 0x009d, 0x00a2, 0xc007, 0xc008, 0xc009, 0xc00a,
    0xc013, 0xc023,
];
/// Chosen when a client offers no extension for versions.
const LEGACY_1_2: u16 = 0x0303;

/// The answer to a client's first message.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// The version and the cipher.
    Hello(u16, u16),
    /// The description of the fatal alert (RFC 8446 §6).
    Alert(u8),
    Closed,
}

const HANDSHAKE_FAILURE: u8 = 40;
const PROTOCOL_VERSION: u8 = 70;

/// Signatures by ECDSA and by RSA (RFC 8446 §4.2.3).
const SIGNATURES: [u16; 6] = [0x0403, 0x0503, 0x0804, 0x0401, 0x0203, 0x0201];
const OF_RSA: [u16; 2] = [0x0804, 0x0401];
/// The same ciphers as the good ones, for a certificate with an RSA key.
const GOOD_FOR_RSA: [u16; 3] = [0xc02f, 0xc030, 0xcca8];

async fn start() -> (crate::support::World, SocketAddr) {
    start_with(&["server.pem"]).await
}

async fn start_with(files: &[&str]) -> (crate::support::World, SocketAddr) {
    let pair = |file: &&str| {
        let file = certificate_file(file);
        format!("{{ cert = '{0}', key = '{0}' }}", file.display())
    };
    let pairs: Vec<_> = files.iter().map(pair).collect();
    let pairs = pairs.join(", ");
    let https = format!("https = {{ address = \"127.0.0.1:0\", certificates = [{pairs}] }}");
    let world = Setup::new().listen(&https).start().await;
    let address = world.https.unwrap();
    (world, address)
}

/// Prefixes bytes with their length of this many bytes.
fn sized(width: usize, bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
    [&length[4 - width..], bytes].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [kind.to_be_bytes().as_slice(), &sized(2, content)].concat()
}

/// A `ClientHello` with these versions, the highest first, and ciphers (RFC 8446 §4.1.2).
fn hello(versions: &[u16], ciphers: &[u16], signatures: &[u16]) -> Vec<u8> {
    let words =
        |words: &[u16]| -> Vec<u8> { words.iter().flat_map(|word| word.to_be_bytes()).collect() };
    let mut extensions = [
        extension(0, &sized(2, &[&[0], &sized(2, b"localhost")[..]].concat())),
        // The groups x25519, P-256 and P-384, and uncompressed points.
        extension(10, &sized(2, &words(&[0x001d, 0x0017, 0x0018]))),
        extension(11, &[1, 0]),
        extension(13, &sized(2, &words(signatures))),
    ]
    .concat();
    if versions[0] > LEGACY_1_2 {
        extensions.extend(extension(43, &sized(1, &words(versions))));
        // Any 32 bytes are a share of x25519.
        let share = [words(&[0x001d]), sized(2, &[9; 32])].concat();
        extensions.extend(extension(51, &sized(2, &share)));
    }
    let body = [
        versions[0].min(LEGACY_1_2).to_be_bytes().as_slice(),
        &[7; 32],
        &[0],
        &sized(2, &words(ciphers)),
        &[1, 0],
        &sized(2, &extensions),
    ]
    .concat();
    let message = [&[1][..], &sized(3, &body)].concat();
    [&[22, 3, 1][..], &sized(2, &message)].concat()
}

/// Sends a first message, and reads the answer to it.
fn offer(address: SocketAddr, versions: &[u16], ciphers: &[u16]) -> Answer {
    offer_of(address, versions, ciphers, &SIGNATURES)
}

fn offer_of(address: SocketAddr, versions: &[u16], ciphers: &[u16], signatures: &[u16]) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(&hello(versions, ciphers, signatures)).unwrap();
    let mut record = [0; 5];
    if stream.read_exact(&mut record).is_err() {
        return Answer::Closed;
    }
    let mut content = vec![0; usize::from(u16::from_be_bytes([record[3], record[4]]))];
    stream.read_exact(&mut content).unwrap();
    if record[0] == 21 {
        return Answer::Alert(content[1]);
    }
    assert_eq!((record[0], content[0]), (22, 2), "a ServerHello");
    let word = |at: usize| u16::from_be_bytes([content[at], content[at + 1]]);
    let session_id = usize::from(content[38]);
    let cipher = word(39 + session_id);
    let is_tls13 = OF_TLS13.contains(&cipher);
    Answer::Hello(if is_tls13 { 0x0304 } else { word(4) }, cipher)
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_before_tls_1_2_are_refused() {
    let (_world, address) = start().await;
    blocking(move || {
        let all = [&GOOD[..], &BAD, &[0xc013, 0xc014]].concat();
        for version in [0x0300, 0x0301, 0x0302] {
            let answer = offer(address, &[version], &all);
            assert_eq!(answer, Answer::Alert(PROTOCOL_VERSION), "{version:#06x}");
        }
        assert!(matches!(offer(address, &[0x0303], &all), Answer::Hello(0x0303, _)));
        let newest = offer(address, &[0x0304, 0x0303], &[&OF_TLS13[..], &all].concat());
        assert!(matches!(newest, Answer::Hello(0x0304, _)), "{newest:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn weak_ciphers_are_never_chosen() {
    let (_world, address) = start().await;
    blocking(move || {
        for cipher in GOOD {
            assert_eq!(offer(address, &[0x0303], &[cipher]), Answer::Hello(0x0303, cipher));
        }
        for cipher in OF_TLS13 {
            let answer = offer(address, &[0x0304], &[cipher]);
            assert_eq!(answer, Answer::Hello(0x0304, cipher), "{cipher:#06x}");
        }
        for cipher in BAD {
            let answer = offer(address, &[0x0303], &[cipher]);
            assert_eq!(answer, Answer::Alert(HANDSHAKE_FAILURE), "{cipher:#06x}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_gets_a_certificate_that_it_can_check() {
    let (_world, address) = start_with(&["server.pem", "rsa.pem"]).await;
    blocking(move || {
        for (cipher, of_rsa) in GOOD.into_iter().zip(GOOD_FOR_RSA) {
            let both = [of_rsa, cipher];
            let first = offer(address, &[0x0303], &both);
            assert_eq!(first, Answer::Hello(0x0303, cipher), "the first one of the config");
            let only_rsa = offer_of(address, &[0x0303], &both, &OF_RSA);
            assert_eq!(only_rsa, Answer::Hello(0x0303, of_rsa));
        }
    })
    .await;
}

/// Sends a request and `close_notify` in one write.
fn send_last(stream: &mut Secured, request: &str) {
    stream.conn.writer().write_all(request.as_bytes()).unwrap();
    stream.conn.send_close_notify();
    let mut records = Vec::new();
    while stream.conn.wants_write() {
        stream.conn.write_tls(&mut records).unwrap();
    }
    stream.sock.write_all(&records).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_half_closes_gets_its_whole_answer() {
    let (world, address) = start().await;
    let authorized = format!("Host: weir\r\nAuthorization: Bearer {KEY}\r\n");
    let body = "{\"title\":\"the last one\"}";
    for version in [&TLS12, &TLS13] {
        for (method, path, body, status) in
            [("GET", REPOSITORY, "", "200"), ("POST", ISSUES, body, "201")]
        {
            let gate = world.close_gate(method, path);
            let length = format!("Content-Length: {}\r\n\r\n", body.len());
            let request = format!("{method} {path} HTTP/1.1\r\n{authorized}{length}{body}");
            let answer = blocking(move || {
                let mut stream = connect(&client_of(&[version], &[]), address, "localhost")?;
                send_last(&mut stream, &request);
                let mut answer = String::new();
                stream.read_to_string(&mut answer).map(|_| answer)
            });
            let answer = tokio::spawn(answer);
            world.held(gate, 1).await;
            world.open_gate(gate);
            let answer = answer.await.unwrap().expect("the gateway says that the answer is whole");
            let begin = format!("HTTP/1.1 {status} ");
            assert!(answer.starts_with(&begin) && answer.ends_with('}'), "{version:?} {answer}");
        }
    }
    let mut another = connect(&client_of(&[&TLS12], &[]), address, "localhost").unwrap();
    let headers = format!("Authorization: Bearer {KEY}\r\n");
    assert!(blocking(move || get_with(&mut another, REPOSITORY, &headers)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_leaves_with_its_half_of_the_socket() {
    let (world, address) = start().await;
    let gate = world.close_gate("GET", REPOSITORY);
    let ended = tokio::spawn(blocking(move || {
        let mut stream = connect(&client_of(&[&TLS12], &[]), address, "localhost").unwrap();
        let headers = format!("Host: weir\r\nAuthorization: Bearer {KEY}\r\n\r\n");
        send_last(&mut stream, &format!("GET {REPOSITORY} HTTP/1.1\r\n{headers}"));
        stream.sock.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    }));
    world.held(gate, 1).await;
    assert_eq!(ended.await.unwrap(), b"", "the upstream has not answered");
    world.open_gate(gate);
}
