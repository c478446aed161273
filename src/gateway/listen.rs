//! Opening the listeners on the caller's runtime, and closing them: pingora's own server would take the whole process.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::IntoRawFd;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pingora::listeners::ListenerConfig;
use pingora::protocols::l4::stream::L4BufferSettings;
use pingora::server::Fds;
use pingora::services::Service as _;
use pingora::services::listening::Service;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Gateway;
use super::door::FrontDoor;

/// One write for each ordinary answer (PINGORA.md, Speed on this path).
const WRITE_BUFFER_BYTES: usize = 16 * 1024;

/// The open listeners of a gateway.
pub struct Listening {
    gateway: Arc<Gateway>,
    /// Where it is reached by HTTP, with the ports that the system chose for port 0.
    pub addresses: Vec<SocketAddr>,
    stop: watch::Sender<bool>,
    services: Vec<JoinHandle<()>>,
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Everything in flight was finished.
    Completely,
    /// This many requests were cut off at the end of the time allowed.
    CutOff(usize),
}

impl Listening {
    /// Opens every configured listener; fails before anything is served when one cannot be opened.
    pub fn open(gateway: &Arc<Gateway>) -> io::Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let mut fds = Fds::new();
        let mut service = Service::new("weir".into(), FrontDoor::new(gateway, "http"));
        let mut addresses = Vec::new();
        for address in &gateway.config.listen.http {
            let listener =
                TcpListener::bind(address).map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}")))?;
            listener.set_nonblocking(true)?;
            let bound = listener.local_addr()?;
            fds.add(bound.to_string(), listener.into_raw_fd());
            let buffers = L4BufferSettings::default().write(WRITE_BUFFER_BYTES);
            service.add_listener(ListenerConfig::tcp(bound.to_string()).l4_buffer(buffers));
            addresses.push(bound);
        }
        if let Some(path) = &gateway.config.listen.unix {
            service.add_uds(&path.display().to_string(), None);
        }
        let fds = Arc::new(Mutex::new(fds));
        let services = vec![tokio::spawn(async move { service.start_service(Some(fds), stopped, 1).await })];
        Ok(Self { gateway: Arc::clone(gateway), addresses, stop, services })
    }

    /// Stops accepting, lets what is in flight finish for at most `grace`, then cuts the rest off.
    pub async fn drain(self, grace: Duration) -> Drained {
        // Closing the door first: a connection accepted before hears 503 only from now on.
        self.stop.send_replace(true);
        self.gateway.active.drain();
        let finished = tokio::time::timeout(grace, self.gateway.active.idle()).await.is_ok();
        let left = self.gateway.active.count();
        for service in self.services {
            service.abort();
        }
        if finished { Drained::Completely } else { Drained::CutOff(left) }
    }
}
