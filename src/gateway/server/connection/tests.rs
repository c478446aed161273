//! A connection's buffer, and the bytes of one request.

use pingora::protocols::l4::stream::Stream as TcpConnection;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch::channel;

use super::*;
use crate::gateway::connections::slot::Slot;

async fn pair() -> (TcpStream, Connection) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let turn = Turn::new(Slot::alone());
    (client, Connection::new(Box::new(TcpConnection::from(stream)), turn))
}

#[tokio::test]
async fn an_idle_connection_holds_no_buffer() {
    let (mut client, mut connection) = pair().await;
    let (_stop, stopped) = channel(false);
    let mut watch = Watch::new(&stopped, &Awaited::new(&Arc::default()), timer_now());
    for _ in 0..2 {
        let soon = timer_now() + Duration::from_millis(1);
        assert_eq!(connection.more(&mut watch, soon).await, Received::TimedOut);
        assert_eq!(connection.ahead.capacity(), 0);
        client.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        let late = timer_now() + Duration::from_secs(20);
        assert_eq!(connection.more(&mut watch, late).await, Received::Bytes);
        assert_eq!(connection.ahead(), b"GET / HTTP/1.1\r\n");
        assert!(connection.ahead.capacity() < 100, "{}", connection.ahead.capacity());
        connection.used(16);
    }
}

#[tokio::test]
async fn a_session_reads_the_bytes_of_one_request() {
    let (mut client, mut connection) = pair().await;
    let (_stop, stopped) = channel(false);
    let mut watch = Watch::new(&stopped, &Awaited::new(&Arc::default()), timer_now());
    client.write_all(b"HEAD3\r\nabc\r\n0\r\n\r\nNEXT").await.unwrap();
    let late = timer_now() + Duration::from_secs(20);
    assert_eq!(connection.more(&mut watch, late).await, Received::Bytes);
    connection.begin(4, Some(BodyFraming::Chunked));
    let mut read = [0; 100];
    let length = connection.read(&mut read).await.unwrap();
    assert_eq!(&read[..length], b"HEAD");
    let length = connection.read(&mut read).await.unwrap();
    assert_eq!(&read[..length], b"3\r\nabc\r\n0\r\n\r\n");
    assert!(connection.discard(&mut watch, late).await);
    assert_eq!(connection.ahead(), b"NEXT");
    // The next read waits for the client's end, and keeps what comes before.
    client.write_all(b"MORE").await.unwrap();
    drop(client);
    assert_eq!(connection.read(&mut read).await.unwrap(), 0);
    assert_eq!(connection.ahead(), b"NEXTMORE");
}
