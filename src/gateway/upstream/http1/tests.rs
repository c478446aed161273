//! Valid and invalid answers, in one piece and byte by byte.

use std::io;
use std::task::Context;

use rustls::{AlertDescription, Error as TlsError};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, duplex};

use super::*;

/// The result of reading an answer.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    status: u16,
    body: String,
    is_reusable: bool,
}

/// Sends `method` and reads `answer`, which arrives in pieces; then the stream ends or stays open.
async fn ask(
    method: Method,
    answer: &'static str,
    piece_bytes: usize,
    closes: bool,
) -> Result<(Read, HeaderMap), Broken> {
    let (ours, mut theirs) = duplex(1024);
    let upstream = tokio::spawn(async move {
        let mut request = [0; 4];
        theirs.read_exact(&mut request).await.unwrap();
        for piece in answer.as_bytes().chunks(piece_bytes) {
            theirs.write_all(piece).await.unwrap();
        }
        (!closes).then_some(theirs)
    });
    let mut connection = Connection::new(Box::new(ours));
    connection.send(&method, b"head", b"", 0, None).await?;
    let (status, headers) = connection.read_head(None).await?;
    let mut body = Vec::new();
    while let Some(piece) = connection.read_body().await? {
        body.extend_from_slice(&piece);
    }
    let _open = upstream.await;
    let body = String::from_utf8(body).unwrap();
    Ok((Read { status: status.as_u16(), body, is_reusable: connection.is_reusable() }, headers))
}

/// The same in several ways, which must agree.
async fn read(answer: &'static str) -> Result<(u16, String, bool), String> {
    let mut all = Vec::new();
    for piece_bytes in [1, 7, 4096] {
        let read = ask(Method::GET, answer, piece_bytes, false).await;
        all.push(
            read.map(|(read, _)| (read.status, read.body, read.is_reusable))
                .map_err(Broken::into_text),
        );
    }
    all.dedup();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn whole(status: u16, body: &str, is_reusable: bool) -> (u16, String, bool) {
    (status, body.to_owned(), is_reusable)
}

#[tokio::test]
async fn an_answer_ends_where_its_head_declares() {
    assert_eq!(
        read("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await,
        Ok(whole(200, "hello", true))
    );
    assert_eq!(
        read("HTTP/1.1 200 OK\r\ncontent-length: 5, 5\r\nContent-Length: 5\r\n\r\nhello").await,
        Ok(whole(200, "hello", true))
    );
    assert_eq!(
        read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx-sum: 1\r\n\r\n").await,
        Ok(whole(200, "hello", true))
    );
    assert_eq!(
        read("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: \"a\"\r\n\r\n").await,
        Ok(whole(304, "", true))
    );
    assert_eq!(read("HTTP/1.1 204\r\n\r\n").await, Ok(whole(204, "", true)));
    assert_eq!(
        read("HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n").await,
        Ok(whole(404, "", true))
    );
}

#[tokio::test]
async fn an_unknown_transfer_coding_ends_with_the_connection() {
    for answer in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: other\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: other\r\nContent-Length: 5\r\n\r\nhello",
    ] {
        let (read, _) = ask(Method::GET, answer, 3, true).await.unwrap();
        assert_eq!(read, Read { status: 200, body: "hello".into(), is_reusable: false });
    }
}

#[tokio::test]
async fn a_body_without_a_length_ends_with_its_connection() {
    let (read, _) = ask(Method::GET, "HTTP/1.1 200 OK\r\n\r\nhello", 3, true).await.unwrap();
    assert_eq!(read, Read { status: 200, body: "hello".into(), is_reusable: false });
}

#[tokio::test]
async fn the_answer_to_a_head_has_no_body() {
    let (read, headers) =
        ask(Method::HEAD, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 3, false).await.unwrap();
    assert_eq!(
        (read.body.as_str(), read.is_reusable, &headers["content-length"]),
        ("", true, &HeaderValue::from_static("5"))
    );
}

#[tokio::test]
async fn a_closing_or_oversupplied_connection_is_not_reused() {
    for answer in [
        "HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    ] {
        let (read, _) = ask(Method::GET, answer, 4096, false).await.unwrap();
        assert_eq!(
            read,
            Read { status: 200, body: "hello".into(), is_reusable: false },
            "{answer}"
        );
    }
    assert_eq!(
        read("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello").await,
        Ok(whole(200, "hello", true))
    );
}

#[tokio::test]
async fn an_answer_without_a_clear_end_is_an_error() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        "SSH-2.0-OpenSSH\r\n\r\n",
        "HTTP/1.1 2x0 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
    ] {
        assert!(read(answer).await.is_err(), "{answer}");
    }
    for broken_off in [
        "",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ] {
        assert!(ask(Method::GET, broken_off, 4096, true).await.is_err(), "{broken_off}");
    }
}

#[tokio::test]
async fn a_head_without_end_is_an_error() {
    let (ours, mut theirs) = duplex(1024);
    let upstream = tokio::spawn(async move {
        let mut written = theirs.write_all(b"HTTP/1.1 200 OK\r\n").await;
        while written.is_ok() {
            written = theirs.write_all(&[b'x'; 1024]).await;
        }
    });
    let mut connection = Connection::new(Box::new(ours));
    assert!(connection.read_head(None).await.is_err());
    drop(connection);
    upstream.await.unwrap();
}

#[tokio::test]
async fn headers_keep_their_lines_and_folds_become_spaces() {
    let answer =
        "HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a:  2 \r\nX-B: 3\r\n 4\r\nContent-Length: 0\r\n\r\n";
    let (_, headers) = ask(Method::GET, answer, 5, false).await.unwrap();
    assert_eq!(headers.get_all("x-a").iter().collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!(headers["x-b"], "3 4");
}

#[tokio::test]
async fn a_request_body_is_no_longer_than_declared() {
    let (ours, mut theirs) = duplex(1024);
    let mut connection = Connection::new(Box::new(ours));
    connection.send(&Method::POST, b"head:", b"", 5, None).await.unwrap();
    assert!(connection.send_body(b"hello!", None).await.is_err());
    connection.send_body(b"", None).await.unwrap();
    connection.send_body(b"hello", None).await.unwrap();
    let mut sent = vec![0; 10];
    theirs.read_exact(&mut sent).await.unwrap();
    assert_eq!(sent, b"head:hello");
}

/// A closed connection whose last bytes are an alert.
struct Refusing;

impl AsyncRead for Refusing {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let alert = TlsError::AlertReceived(AlertDescription::CertificateRequired);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, alert)))
    }
}

impl AsyncWrite for Refusing {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_refused_certificate_is_found_behind_a_broken_pipe() {
    let head = Connection::new(Box::new(Refusing)).send(&Method::GET, b"head", b"", 0, None).await;
    assert!(matches!(head, Err(Broken::Refused(_))), "{head:?}");
    let mut connection = Connection::new(Box::new(Refusing));
    connection.outgoing = 4;
    let body = connection.send_body(b"body", None).await;
    assert!(matches!(body, Err(Broken::Refused(_))), "{body:?}");
}
