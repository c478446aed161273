//! Credentials of requests: the world's tokens by kind and person, JWTs of apps, and installation
//! tokens made for a test.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::{Map, Value, json};
use weir::emulator::TokenView;

use crate::kit::{ANONYMOUS, TestRequest, Upstream};
use crate::recorder::Caller;

impl Upstream {
    /// The current response of `/_emulator/world`.
    pub fn world(&mut self) -> Value {
        self.get(ANONYMOUS, "/_emulator/world").expect_status(200).body
    }

    /// The first response of `/_emulator/world`: enough for what no request changes, such as apps
    /// and seed ids.
    pub fn first_world(&mut self) -> Value {
        if self.first_world.is_none() {
            self.first_world = Some(self.world());
        }
        self.first_world.clone().unwrap_or_default()
    }

    pub(crate) fn learn_callers(&mut self) {
        for view in self.emulator.tokens() {
            let grants = if view.permissions.contains_key("*") {
                "*".to_owned()
            } else {
                view.permissions
                    .iter()
                    .map(|(name, level)| format!("{name}={level}"))
                    .collect::<Vec<_>>()
                    .join(",")
            };
            self.callers.insert(
                view.token,
                Caller { scheme: String::new(), kind: view.kind.to_owned(), grants },
            );
        }
    }

    /// The first matching token of the world.
    pub fn token_where(&self, wanted: impl Fn(&TokenView) -> bool) -> Option<String> {
        self.emulator.tokens().into_iter().find(|view| wanted(view)).map(|view| view.token)
    }

    /// The widest token of this kind and user: the most scopes, or every permission.
    pub fn token(&self, kind: &str, user: &str) -> String {
        let width = |view: &TokenView| {
            if view.permissions.contains_key("*") {
                usize::MAX
            } else {
                view.scopes.len() + view.permissions.len()
            }
        };
        let fitting = self
            .emulator
            .tokens()
            .into_iter()
            .filter(|view| view.kind == kind && view.user.as_deref() == Some(user));
        // The first of equally wide ones: expired tokens come last.
        let widest =
            fitting.reduce(|best, view| if width(&view) > width(&best) { view } else { best });
        widest.unwrap_or_else(|| panic!("the world has no {kind} token of {user}")).token
    }

    /// A classic token of this user with every scope.
    pub fn classic(&self, user: &str) -> String {
        self.token("classic", user)
    }

    /// A classic token of this user without any scope.
    pub fn classic_without_scopes(&self, user: &str) -> String {
        self.token_where(|view| {
            view.kind == "classic" && view.user.as_deref() == Some(user) && view.scopes.is_empty()
        })
        .unwrap_or_else(|| panic!("the world has no classic token of {user} without scopes"))
    }

    /// The world's fine-grained token without any permission.
    pub fn fine_grained_without_permissions(&self) -> String {
        self.token_where(|view| view.kind == "fine-grained" && view.permissions.is_empty())
            .expect("a fine-grained token with no permission")
    }

    /// The world's token of the app's installation on this organization.
    pub fn installation(&mut self, organization: &str) -> String {
        let id = self.installation_id(organization);
        let fits = |view: &TokenView| {
            view.kind == "installation" && view.account.contains(&id.to_string())
        };
        let named = |view: &TokenView| {
            view.kind == "installation"
                && (view.account.contains(organization) || view.token.ends_with(organization))
        };
        self.token_where(named)
            .or_else(|| self.token_where(fits))
            .unwrap_or_else(|| panic!("the world has no installation token for {organization}"))
    }

    /// The id of the app's installation on this organization.
    pub fn installation_id(&mut self, organization: &str) -> u64 {
        let world = self.first_world();
        let apps = world["apps"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut installations = apps
            .iter()
            .flat_map(|app| app["installations"].as_array().map(Vec::as_slice).unwrap_or_default());
        let found = installations.find(|installation| installation["organization"] == organization);
        found
            .and_then(|installation| installation["id"].as_u64())
            .unwrap_or_else(|| panic!("no app is installed on {organization}"))
    }

    /// A valid JWT of the world's first app.
    pub fn jwt(&mut self) -> String {
        self.jwt_from(-60, 540)
    }

    /// A JWT of the world's first app, issued and expiring this many seconds from now.
    pub fn jwt_from(&mut self, issued: i64, expires: i64) -> String {
        let app = self.first_world()["apps"][0].clone();
        let now = i64::try_from(self.now.as_secs()).expect("a time of this era");
        let claims =
            json!({ "iss": app["app_id"].to_string(), "iat": now + issued, "exp": now + expires });
        signed(
            app["private_key"].as_str().expect("the world shows the app's key"),
            &json!({ "alg": "RS256", "typ": "JWT" }),
            &claims,
        )
    }

    /// Mints an installation token with exactly these permissions, given as `("members", "read")`.
    pub fn installation_with(
        &mut self,
        organization: &str,
        permissions: &[(&str, &str)],
    ) -> String {
        let given: Map<String, Value> =
            permissions.iter().map(|(name, level)| ((*name).to_owned(), json!(level))).collect();
        let path =
            format!("/app/installations/{}/access_tokens", self.installation_id(organization));
        let jwt = self.jwt();
        let answer = self
            .send(&TestRequest::new("POST", &path).by(&jwt).json(&json!({ "permissions": given })))
            .expect_status(201);
        let token = answer.body["token"].as_str().expect("a minted token").to_owned();
        let mut grants: Vec<String> =
            permissions.iter().map(|(name, level)| format!("{name}={level}")).collect();
        grants.sort();
        let caller = Caller {
            scheme: String::new(),
            kind: "installation".to_owned(),
            grants: grants.join(","),
        };
        self.callers.insert(token.clone(), caller);
        token
    }
}

/// A JWT with RS256; the key is PEM, PKCS#1.
pub fn signed(private_key: &str, header: &Value, claims: &Value) -> String {
    let base64: String = private_key.lines().filter(|line| !line.starts_with("-----")).collect();
    let pair = RsaKeyPair::from_der(&STANDARD.decode(base64).expect("base64")).expect("an RSA key");
    let text = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header.to_string()),
        URL_SAFE_NO_PAD.encode(claims.to_string())
    );
    let mut signature = vec![0; pair.public().modulus_len()];
    pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
        .expect("it signs");
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}
