//! `[[accounts]]`: owners of budgets.

use std::fmt;
use std::sync::Arc;

use crate::api::AccountKind;
use crate::config::input::declared::Declared;
use crate::config::input::reader::{Choice, Entry, Read, Reader};
use crate::config::printer::{Printer, list, text};

/// One entry of `[[accounts]]`.
#[derive(Clone, Debug)]
pub struct Account {
    /// Unique name.
    pub name: Arc<str>,
    /// Kind of account at the upstream.
    pub kind: AccountKind,
    /// Owners and repositories that it can see.
    pub reach: Reach,
    /// Requests of each window that are left to other consumers.
    pub reserve: u32,
    /// Account whose budgets its requests consume as well: an index into
    /// [`Config::accounts`](crate::config::Config::accounts).
    pub also_spends: Option<usize>,
    /// True for an account that left the config at a reload. It keeps its index for requests of
    /// earlier configs.
    pub retired: bool,
}

const ALSO_SPENDS: &str = "another account of kind `user` that has no also_spends itself";

/// Owners and repositories that an account can see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Unknown: every route may be tried.
    Everything,
    /// These alone; never empty.
    Only(Vec<Territory>),
}

/// One entry of an account's `reach`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Territory {
    /// An owner with all its repositories.
    Owner(Arc<str>),
    /// A single repository.
    Repository {
        /// User or organization that owns the repository.
        owner: Arc<str>,
        /// Name without the owner.
        name: Arc<str>,
    },
}

impl Reach {
    /// Returns true if routes about `owner` as a whole are within reach. Case does not matter at
    /// the upstream.
    pub fn covers_owner(&self, owner: &str) -> bool {
        self.covers(|territory| {
            matches!(territory, Territory::Owner(own) if own.eq_ignore_ascii_case(owner))
        })
    }

    /// Returns true if routes about the repository `owner/name` are within reach.
    pub fn covers_repository(&self, owner: &str, name: &str) -> bool {
        self.covers(|territory| match territory {
            Territory::Owner(own) => own.eq_ignore_ascii_case(owner),
            Territory::Repository { owner: own, name: its } => {
                own.eq_ignore_ascii_case(owner) && its.eq_ignore_ascii_case(name)
            }
        })
    }

    fn covers(&self, includes: impl Fn(&Territory) -> bool) -> bool {
        match self {
            Self::Everything => true,
            Self::Only(territories) => territories.iter().any(includes),
        }
    }
}

impl Choice for AccountKind {
    const ALL: &'static [(&'static str, Self)] = &[
        ("user", Self::User),
        ("installation", Self::Installation),
        ("app", Self::App),
        ("oauth-app", Self::OauthApp),
        ("workflow", Self::Workflow),
        ("anonymous", Self::Anonymous),
    ];
}

impl Account {
    pub(crate) fn read_all(root: &mut Reader<'_>) -> Declared<Self> {
        let mut also: Vec<Option<Entry<'_>>> = Vec::new();
        let mut anonymous = false;
        let mut accounts = Declared::read(root, "accounts", "account", |reader, name| {
            let kind = reader.required("kind");
            let reach = reader.or("reach", Reach::Everything);
            let reserve = reader.or("reserve", 0);
            also.push(reader.entry("also_spends"));
            if kind == Some(AccountKind::Anonymous) && std::mem::replace(&mut anonymous, true) {
                let problem = "a second anonymous account: both would spend the one budget of this machine's address";
                reader.refuse::<()>("kind", problem, "one account of kind `anonymous`");
            }
            Some(Self { reach, reserve, ..Self::new(name?, kind?) })
        });
        for (index, entry) in also.iter().enumerate() {
            if let Some(entry) = entry {
                accounts.link(index, entry, |target| also.get(target).is_some_and(Option::is_some));
            }
        }
        if accounts.is_empty() {
            root.refuse::<()>("accounts", "missing", "at least one entry, written [[accounts]]");
        }
        accounts
    }

    /// Creates the account of an app without one in the file: the app's own requests spend a budget
    /// of their own.
    pub(crate) fn of_app(app_id: u64, others: &[Self]) -> Self {
        let mut name = format!("app {app_id}");
        while others.iter().any(|other| *other.name == *name) {
            name.push('\'');
        }
        Self::new(name.into(), AccountKind::App)
    }

    fn new(name: Arc<str>, kind: AccountKind) -> Self {
        let reach = Reach::Everything;
        Self { name, kind, reach, reserve: 0, also_spends: None, retired: false }
    }

    pub(crate) fn is_of_one_repository(&self) -> bool {
        matches!(&self.reach, Reach::Only(territories) if matches!(territories.as_slice(), [Territory::Repository { .. }]))
    }

    pub(crate) fn print(&self, all: &[Self], printer: &mut Printer) {
        printer.entry("accounts");
        printer.set("name", text(&self.name));
        printer.set("kind", text(self.kind.name()));
        // The absent key means everything; no value does.
        if let Reach::Only(territories) = &self.reach {
            printer.set("reach", list(territories.iter().map(text)));
        }
        printer.set("reserve", self.reserve);
        printer.set_some("also_spends", self.also_spends.and_then(|index| name_of(all, index)));
    }
}

/// Formats the name of the account at `index` as a TOML string.
pub(crate) fn name_of(accounts: &[Account], index: usize) -> Option<String> {
    accounts.get(index).map(|account| text(&account.name))
}

impl Declared<Account> {
    /// Reads `entry`, the `also_spends` of the account at `index`. Only one step is allowed, as at
    /// the upstream; a circle would spend without end.
    fn link(&mut self, index: usize, entry: &Entry<'_>, links_on: impl Fn(usize) -> bool) {
        let Some(target) = self.resolve(entry) else { return };
        let kind_of = |index: usize| self.get(index).map(|account| account.kind);
        let problem = if kind_of(index).is_some_and(|kind| kind != AccountKind::User) {
            "only an account of kind `user` has tokens that spend another budget as well".to_owned()
        } else if target == index {
            "the account would spend its own budget twice".to_owned()
        } else if let Some(kind) = kind_of(target).filter(|kind| *kind != AccountKind::User) {
            format!("the account is of kind `{}`", kind.name())
        } else if links_on(target) {
            "the account spends a third one's budget as well".to_owned()
        } else {
            if let Some(account) = self.get_mut(index) {
                account.also_spends = Some(target);
            }
            return;
        };
        entry.refuse::<()>(problem, ALSO_SPENDS);
    }
}

impl fmt::Display for Territory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(owner) => f.write_str(owner),
            Self::Repository { owner, name } => write!(f, "{owner}/{name}"),
        }
    }
}

impl Read for Reach {
    fn accepted() -> String {
        format!("a list, each of it {}; leave the key out for everything", Territory::accepted())
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        let territories = Vec::read(entry)?;
        if territories.is_empty() {
            return entry.refuse("the account can see nothing", Self::accepted());
        }
        Some(Self::Only(territories))
    }
}

impl Read for Territory {
    fn accepted() -> String {
        "an owner such as \"acme\" or a repository such as \"acme/widgets\"".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        let is_name = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        };
        entry.parsed("owner or repository", |text| match text.split_once('/') {
            None => is_name(text).then(|| Self::Owner(text.into())),
            Some((owner, name)) => (is_name(owner) && is_name(name))
                .then(|| Self::Repository { owner: owner.into(), name: name.into() }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_in_reach_includes_its_repositories() {
        let repository = Territory::Repository { owner: "corp".into(), name: "tools".into() };
        let reach = Reach::Only(vec![Territory::Owner("acme".into()), repository]);
        assert!(reach.covers_owner("Acme") && reach.covers_repository("ACME", "widgets"));
        assert!(reach.covers_repository("corp", "Tools"));
        assert!(!reach.covers_owner("corp") && !reach.covers_repository("corp", "other"));
        assert!(Reach::Everything.covers_owner("corp"));
    }
}
