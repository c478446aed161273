//! An operator: requests to the admin listener, and the commands that use it.

use std::net::SocketAddr;
use std::process::Output;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use weir::admin::Admin;

use crate::support::{Reply, World};

pub(crate) const ISSUES: &str = "/repos/acme/widgets/issues";
pub(crate) const ADMIN: &str = "admin = \"127.0.0.1:0\"";
pub(crate) const TOKEN: &str = "open-sesame-of-the-operators";

/// A client of the admin listener.
pub struct Operator {
    pub(crate) address: SocketAddr,
    http: Client<HttpConnector, Full<Bytes>>,
}

impl Operator {
    pub fn of(world: &World) -> Self {
        let address = Admin::open(&world.current)
            .unwrap()
            .address()
            .expect("the config names an admin listener");
        Self { address, http: Client::builder(TokioExecutor::new()).build_http() }
    }

    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        authorization: Option<&str>,
    ) -> Reply {
        let mut request =
            Request::builder().method(&method).uri(format!("http://{}{path}", self.address));
        if method == Method::POST {
            request = request.header("content-type", "application/json");
        }
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        Reply::read(self.http.request(request.body(Full::default()).unwrap()).await.unwrap()).await
    }

    pub async fn get(&self, path: &str) -> Reply {
        let reply = self.ask(Method::GET, path, None).await;
        reply.assert_status(200);
        reply
    }

    pub(crate) async fn purge(&self, body: &str) -> Reply {
        self.post("/api/cache/purge", body).await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Reply {
        let request = Request::post(format!("http://{}{path}", self.address))
            .header("content-type", "application/json")
            .body(Full::from(body.to_owned()))
            .unwrap();
        Reply::read(self.http.request(request).await.unwrap()).await
    }

    /// Sends any request; its answer may have no end.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        self.http.request(request).await.unwrap()
    }

    pub(crate) async fn budgets(&self) -> Value {
        self.get("/api/budgets").await.json()
    }

    pub(crate) async fn client(&self, name: &str) -> Value {
        let all = self.get("/api/clients").await.json();
        let found =
            all["clients"].as_array().unwrap().iter().find(|client| client["client"] == name);
        found.unwrap_or_else(|| panic!("no client {name}: {all}")).clone()
    }

    /// The value of one series.
    pub(crate) async fn metric(&self, series: &str) -> Option<f64> {
        let text = String::from_utf8(self.get("/metrics").await.body.to_vec()).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map(|value| value.parse().unwrap())
    }

    /// Runs `weir budgets` as an operator does.
    pub(crate) async fn weir_budgets(&self, arguments: &[&str], token: Option<&str>) -> Output {
        self.weir("budgets", arguments, token).await
    }

    /// Runs a command as an operator does.
    pub(crate) async fn weir(&self, name: &str, arguments: &[&str], token: Option<&str>) -> Output {
        let folder = tempfile::tempdir().unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg(name).args(arguments).current_dir(folder.path()).env_remove("WEIR_ADMIN_TOKEN");
        if let Some(token) = token {
            command.env("WEIR_ADMIN_TOKEN", token);
        }
        tokio::task::spawn_blocking(move || (command.output().unwrap(), folder).0).await.unwrap()
    }
}

pub(crate) fn printed(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
