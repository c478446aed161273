//! Accounts by the names that the transcript shows.

use std::net::IpAddr;

use super::World;
use crate::emulator::accounts::AccountId;

impl World {
    pub fn account_name(&self, account: AccountId) -> String {
        match account {
            AccountId::User(id) => self.login(id).to_owned(),
            AccountId::AppUser { app, user } => format!("{}-by-app-{app}", self.login(user)),
            AccountId::Installation(id) => format!("installation-{id}"),
            AccountId::App(id) => format!("app-{id}"),
            AccountId::OauthApp(id) => format!("oauth-app-{id}"),
            AccountId::Workflow(id) => format!("workflow-{id}"),
            AccountId::Anonymous(address) => format!("anonymous-{address}"),
            AccountId::Replayed(digest) => format!("recorded-{digest}"),
        }
    }

    /// Returns true when a request may come from an account of this name.
    pub fn has_account(&self, name: &str) -> bool {
        let is_app = |id| self.app(id).is_some() || self.oauth_apps.iter().any(|app| app.id == id);
        let by_app = || {
            let (login, app) = name.rsplit_once("-by-app-")?;
            Some(self.user_by_login(login).is_some() && app.parse().is_ok_and(is_app))
        };
        let numbered = |(kind, id): (&str, &str)| {
            id.parse().is_ok_and(|id| match kind {
                "installation" => self.installation(id).is_some(),
                "app" => self.app(id).is_some(),
                "oauth-app" => self.oauth_apps.iter().any(|app| app.id == id),
                "workflow" => self.repositories.contains_key(&id),
                _ => false,
            })
        };
        self.user_by_login(name).is_some_and(|user| user.login == name)
            || name.strip_prefix("anonymous-").is_some_and(|ip| ip.parse::<IpAddr>().is_ok())
            || by_app() == Some(true)
            || name.rsplit_once('-').is_some_and(numbered)
    }
}

#[cfg(test)]
mod tests {
    use crate::clock::Timestamp;
    use crate::emulator::seed;
    use crate::emulator::seed::options::Options;

    #[test]
    fn every_account_of_a_token_has_its_name() {
        let world = seed::world(&Options::default(), Timestamp::from_secs(1_800_000_000));
        for token in &world.tokens {
            let name = world.account_name(world.payer(token));
            assert!(world.has_account(&name), "{name}");
        }
        for name in ["anonymous-127.0.0.1", "anonymous-::1", "app-301", "oauth-app-321"] {
            assert!(world.has_account(name), "{name}");
        }
        for name in ["", "nobody", "ADA", "installation-1", "ada-by-app-9", "anonymous-x", "app-x"]
        {
            assert!(!world.has_account(name), "{name}");
        }
    }
}
