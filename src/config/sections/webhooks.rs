//! `[webhooks]`: deliveries that announce changes upstream, and the webhooks that the gateway
//! monitors.

use std::sync::Arc;
use std::time::Duration;

use super::accounts::{Account, Reach, Territory, name_of};
use crate::config::input::declared::Declared;
use crate::config::input::document::quoted;
use crate::config::input::reader::{Entry, Reader};
use crate::config::input::scalars::duration_text;
use crate::config::input::secret::Secret;
use crate::config::printer::{Printer, list, text};

/// Default of `check_every`. A check costs two requests.
const CHECK_EVERY: Duration = Duration::from_mins(1);
/// Checks more often than this waste budget.
const CHECK_EVERY_MIN: Duration = Duration::from_secs(10);
/// The webhook of an app; the credential determines the app.
const APP_HOOK: &str = "/app/hook";

/// The section `[webhooks]`.
#[derive(Clone, Debug)]
pub struct Webhooks {
    /// Secret that signs the deliveries.
    pub secret: Secret,
    /// Previous secret, still valid during a rotation.
    pub previous_secret: Option<Secret>,
    /// The monitored webhooks.
    pub hooks: Vec<Hook>,
}

/// One entry of `[[webhooks.hooks]]`: a webhook that delivers here and is monitored.
#[derive(Clone, Debug)]
pub struct Hook {
    /// Path at the upstream.
    pub at: Arc<str>,
    /// Account whose token reads the webhook and its deliveries: an index into
    /// [`Config::accounts`](crate::config::Config::accounts).
    pub account: usize,
    /// Owners and repositories that it covers.
    pub reach: Reach,
    /// Interval of the checks.
    pub check_every: Duration,
}

impl Webhooks {
    pub(crate) fn read(entry: &Entry<'_>, accounts: &Declared<Account>) -> Option<Self> {
        entry.table(|reader| {
            let secret = reader.required("secret");
            Some(Self {
                previous_secret: reader.optional("previous_secret"),
                hooks: reader.all_entries("hooks", |reader| Hook::read(reader, accounts))?,
                secret: secret?,
            })
        })
    }

    pub(crate) fn print(&self, accounts: &[Account], printer: &mut Printer) {
        printer.section("webhooks");
        printer.set("secret", self.secret.printed());
        printer.set_some("previous_secret", self.previous_secret.as_ref().map(Secret::printed));
        for hook in &self.hooks {
            printer.entry("webhooks.hooks");
            printer.set("at", text(&hook.at));
            printer.set_some("account", name_of(accounts, hook.account));
            if let (APP_HOOK, Reach::Only(territories)) = (&*hook.at, &hook.reach) {
                printer.set("reach", list(territories.iter().map(text)));
            }
            printer.set("check_every", text(duration_text(hook.check_every)));
        }
    }
}

impl Hook {
    fn read(reader: &mut Reader<'_>, accounts: &Declared<Account>) -> Option<Self> {
        let at = reader.required::<Arc<str>>("at");
        let account = accounts.reference(reader, "account");
        let given = reader.optional::<Reach>("reach");
        let check_every = reader.or("check_every", CHECK_EVERY);
        if check_every < CHECK_EVERY_MIN {
            let problem = "too often: each check costs two requests";
            let accepted = format!("at least \"{}\"", duration_text(CHECK_EVERY_MIN));
            reader.refuse::<()>("check_every", problem, accepted);
        }
        let at = at?;
        let Some(named) = about(&at) else {
            let accepted = "the address of a webhook, such as \"/orgs/acme/hooks/7\", \"/repos/acme/widgets/hooks/3\" or \"/app/hook\"";
            return reader.refuse("at", format!("no webhook's address: {}", quoted(&at)), accepted);
        };
        let reach = match (named, reader.is_set("reach")) {
            (HookTarget::Territory(_), true) => {
                let problem = "what the webhook is about follows from its address";
                return reader.refuse("reach", problem, "no such key");
            }
            (HookTarget::Territory(territory), false) => Reach::Only(vec![territory]),
            (HookTarget::App, true) => given?,
            (HookTarget::App, false) => {
                let accepted = "the owners and repositories where the app is installed";
                return reader.refuse("reach", "missing", accepted);
            }
        };
        Some(Self { at, account: account?, reach, check_every })
    }

    /// Returns the path of its settings.
    pub fn settings_path(&self) -> &str {
        if &*self.at == APP_HOOK { "/app" } else { &self.at }
    }
}

enum HookTarget {
    Territory(Territory),
    /// All installations of the credential's app.
    App,
}

/// Parses the path of a webhook; `None` when it is none.
fn about(at: &str) -> Option<HookTarget> {
    let is_name = |name: &str| {
        let is_plain =
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        !name.is_empty() && name != "." && name != ".." && is_plain
    };
    let is_id = |id: &str| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
    match at.split('/').collect::<Vec<_>>().as_slice() {
        ["", "app", "hook"] => Some(HookTarget::App),
        ["", "orgs", owner, "hooks", id] if is_name(owner) && is_id(id) => {
            Some(HookTarget::Territory(Territory::Owner((*owner).into())))
        }
        ["", "repos", owner, name, "hooks", id] if is_name(owner) && is_name(name) && is_id(id) => {
            Some(HookTarget::Territory(Territory::Repository {
                owner: (*owner).into(),
                name: (*name).into(),
            }))
        }
        _ => None,
    }
}
