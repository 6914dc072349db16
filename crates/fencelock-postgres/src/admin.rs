//! The schema, for those whose role may not make it.
use crate::{
    config::{Config, Strategy},
    link::{Link, schema_name},
    wire::{
        call::identifier,
        schema::{self, Part},
    },
};
use async_trait::async_trait;
use fencelock_core::{Admin, Error, ErrorKind, Result, on_tokio};

impl Config {
    fn parts(&self, schema: &str) -> Vec<Part> {
        let own = (self.strategy == Strategy::ShedLock).then(|| schema::shedlock(schema));
        [schema::common(schema)].into_iter().chain(own).collect()
    }
    async fn printed(&self, role: Option<&str>) -> Result<String> {
        let link = Link::new(self)?;
        let schema = match &self.schema {
            Some(schema) => schema_name(schema),
            // The first one of this role's search path: only the server knows.
            None => link.find(self).await,
        };
        let schema = schema.map_err(|fault| link.tell("migrate", &fault))?;
        let script: String = self.parts(&schema).iter().map(Part::script).collect();
        let grants = self.grants(&schema, role);
        Ok(format!("\\set ON_ERROR_STOP on\nBEGIN ISOLATION LEVEL READ COMMITTED;\n{script}{grants}COMMIT;\n"))
    }
    async fn make(&self, role: Option<&str>) -> Result<()> {
        let link = Link::new(self)?;
        let make = async {
            link.set_up(self).await?;
            let grants = link.place().map(|place| self.grants(&place.schema, role)).unwrap_or_default();
            link.again(&grants).await.map(drop)
        };
        make.await.map_err(|fault| link.tell("migrate", &fault))
    }
    fn grants(&self, schema: &str, role: Option<&str>) -> String {
        let Some(role) = role.map(identifier) else { return String::new() };
        self.parts(schema).iter().map(|part| part.grants(&role)).collect()
    }
}
/// One who can be given something alone: `public` is everybody, with quotes or without.
fn check(role: Option<&str>) -> Result<()> {
    let what = match role {
        Some("") => "the role has no name",
        Some("public") => "the role public is everybody",
        // The server would take the first ones, which may be somebody else.
        Some(role) if role.len() > 63 => "the role's name has more than 63 bytes",
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::InvalidConfig, "migrate", what).hint("name the role that the program connects as"))
}
#[async_trait]
impl Admin for Config {
    async fn schema(&self, role: Option<&str>) -> Result<String> {
        check(role)?;
        let (config, role) = (self.clone(), role.map(str::to_owned));
        on_tokio(async move { config.printed(role.as_deref()).await }).await
    }
    async fn migrate(&self, role: Option<&str>) -> Result<()> {
        check(role)?;
        let (config, role) = (self.clone(), role.map(str::to_owned));
        on_tokio(async move { config.make(role.as_deref()).await }).await
    }
}
