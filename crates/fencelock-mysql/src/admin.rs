//! The schema, for those whose account may not make it.
use crate::{
    config::{Config, Strategy},
    link::Link,
    wire::schema::{self, Letters},
};
use async_trait::async_trait;
use fencelock_core::{Admin, Error, ErrorKind, Result, on_tokio};

/// As `USER` or `USER@HOST`; `USER` is who comes from anywhere. Without a name it is anybody.
fn account(role: &str) -> Result<String> {
    let (user, host) = role.rsplit_once('@').unwrap_or((role, "%"));
    if user.is_empty() || host.is_empty() {
        let error = Error::new(ErrorKind::InvalidConfig, "migrate", "the account has no name").with("account", role);
        return Err(error.hint("write USER, or USER@HOST, as the program connects"));
    }
    Ok(format!("{}@{}", quoted(user), quoted(host)))
}
fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}
/// All of it, and what an account needs. `letters`: where it is for ShedLock, too.
fn script(letters: Option<&Letters>, account: Option<&str>) -> (Vec<String>, Vec<String>) {
    let mut all = schema::script();
    all.extend(letters.map(schema::shedlock).unwrap_or_default());
    let grants = account.map(|account| schema::grants(&all, account)).unwrap_or_default();
    (all, grants)
}
impl Config {
    async fn printed(&self, account: Option<&str>) -> Result<String> {
        let mut letters = None;
        if self.strategy == Strategy::ShedLock {
            let link = Link::new(self)?;
            // Only the server knows what its table is like.
            letters = Some(link.letters().await.map_err(|fault| link.tell("migrate", &fault))?.unwrap_or_default());
        }
        let (made, grants) = script(letters.as_ref(), account);
        let all = schema::printed(letters.as_ref(), &made, &grants);
        Ok(format!("DELIMITER //\nUSE {}\n//\n{all}\n//\nDELIMITER ;\n", quoted(&self.database)))
    }
    async fn make(&self, account: Option<&str>) -> Result<()> {
        let link = Link::new(self)?;
        let make = async {
            link.set_up(self).await?;
            let letters = (self.strategy == Strategy::ShedLock).then(Letters::default);
            for grant in script(letters.as_ref(), account).1 {
                link.again(&grant).await?;
            }
            Ok(())
        };
        make.await.map_err(|fault| link.tell("migrate", &fault))
    }
}
#[async_trait]
impl Admin for Config {
    async fn schema(&self, role: Option<&str>) -> Result<String> {
        let (config, account) = (self.clone(), role.map(account).transpose()?);
        on_tokio(async move { config.printed(account.as_deref()).await }).await
    }
    async fn migrate(&self, role: Option<&str>) -> Result<()> {
        let (config, account) = (self.clone(), role.map(account).transpose()?);
        on_tokio(async move { config.make(account.as_deref()).await }).await
    }
}
