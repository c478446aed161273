//! An app of octocrab behind the gateway: the gateway's key is a header of each request, and the
//! app's own credentials go through.
//!
//! The input is `{"base_url", "key", "arguments"}` on standard input. The caller judges the
//! observations.

use std::error::Error;

use http::HeaderName;
use jsonwebtoken::EncodingKey;
use octocrab::Octocrab;
use octocrab::models::{AppId, InstallationId};
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let plan: Value = serde_json::from_reader(std::io::stdin())?;
    let given = &plan["arguments"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let key = EncodingKey::from_rsa_pem(text(&given["private_key"]).as_bytes())?;
    let app = Octocrab::builder()
        .base_uri(text(&plan["base_url"]))?
        .add_header(HeaderName::from_static("x-weir-key"), text(&plan["key"]))
        .app(AppId(number(&given["app_id"])), key)
        .build()?;
    let own: Value = app.get("/app", None::<&()>).await?;
    let installed = app.installation(InstallationId(number(&given["installation_id"])))?;
    let repositories: Value = installed.get("/installation/repositories", None::<&()>).await?;
    let (owner, repo) = (text(&given["owner"]), text(&given["repo"]));
    let issues = installed.issues(&owner, &repo);
    let created = issues.create(text(&given["title"])).send().await?;
    let read = issues.get(created.number).await?;
    println!(
        "{}",
        json!({
            "app": own["slug"],
            "repositories": repositories["repositories"].as_array().is_some_and(|all| !all.is_empty()),
            "title": read.title,
            "author": read.user.login,
        })
    );
    Ok(())
}
