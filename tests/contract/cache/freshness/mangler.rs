//! An unreliable network between the upstream's webhooks and the gateway: it loses, delays and
//! duplicates deliveries.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use weir::random::Rng;

use super::traffic::Traffic;
use crate::support::World;

/// The secret shared by upstream and gateway.
pub const SECRET: &str = "sesame";

/// Receives the upstream's deliveries and forwards some of them.
pub struct Mangler {
    world: Arc<World>,
    traffic: Arc<Traffic>,
    dice: Mutex<Rng>,
    late: Mutex<Vec<Delivery>>,
}

#[derive(Clone)]
struct Delivery {
    headers: HeaderMap,
    body: Bytes,
}

impl Mangler {
    /// Creates an organization webhook that delivers to it.
    pub async fn start(world: &Arc<World>, traffic: &Arc<Traffic>, seed: u64) -> Arc<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (world, traffic) = (Arc::clone(world), Arc::clone(traffic));
        let mangler = Arc::new(Self {
            world,
            traffic,
            dice: Mutex::new(Rng::for_purpose(seed, 2)),
            late: Mutex::default(),
        });
        tokio::spawn(Arc::clone(&mangler).serve(listener));
        mangler.hook(address);
        mangler
    }

    fn hook(&self, receiver: SocketAddr) {
        let config = json!({ "url": format!("http://{receiver}/"), "content_type": "json", "secret": SECRET });
        let hook = json!({ "name": "web", "active": true, "events": ["*"], "config": config });
        self.world.ask_emulator(Method::POST, "/orgs/acme/hooks", &hook);
    }

    /// Forwards some of the delayed deliveries, in any order.
    pub async fn hand_on_late(&self) {
        let due: Vec<Delivery> = {
            let (mut late, mut dice) = (self.late.lock(), self.dice.lock());
            late.extract_if(.., |_| dice.percent(30.0)).collect()
        };
        for delivery in due.into_iter().rev() {
            self.hand_on(&delivery).await;
        }
    }

    async fn serve(self: Arc<Self>, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(Arc::clone(&self).converse(stream));
        }
    }

    async fn converse(self: Arc<Self>, stream: TcpStream) {
        let take = service_fn(|request| {
            let mangler = Arc::clone(&self);
            async move { Ok::<_, Infallible>(mangler.take(request).await) }
        });
        // A failing receiver is part of the scenario.
        let _ = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), take)
            .await;
    }

    async fn take(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let delivery =
            Delivery { headers: head.headers, body: body.collect().await.unwrap().to_bytes() };
        let chance = self.dice.lock().below(100);
        let status = match chance {
            0..15 => StatusCode::BAD_GATEWAY,
            15..35 => {
                self.late.lock().push(delivery);
                StatusCode::OK
            }
            35..50 => {
                self.late.lock().push(delivery.clone());
                self.hand_on(&delivery).await
            }
            _ => self.hand_on(&delivery).await,
        };
        Response::builder().status(status).body(Full::default()).unwrap()
    }

    async fn hand_on(&self, delivery: &Delivery) -> StatusCode {
        let ours = |name: &str| name.starts_with("x-") || name == "content-type";
        let headers = delivery.headers.iter().filter(|(name, _)| ours(name.as_str()));
        let mut headers: Vec<(&str, &str)> =
            headers.map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        // The upstream has no client key.
        headers.push(("authorization", ""));
        let body = std::str::from_utf8(&delivery.body).unwrap();
        let answer = self.world.send(Method::POST, "/_weir/webhooks", &headers, body).await;
        assert!(
            answer.status.is_success(),
            "a delivery with a right signature was refused: {answer:?}"
        );
        let payload: Value = serde_json::from_slice(&delivery.body).unwrap();
        self.traffic.reported(&payload);
        answer.status
    }
}
