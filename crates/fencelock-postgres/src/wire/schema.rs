//! The tables and functions, and how they come into a database.
use crate::wire::call::literal;

/// Of the tables and functions together.
pub(crate) const VERSION: i64 = 10;
/// Of what comes to them for locks that are shared with ShedLock.
pub(crate) const SHEDLOCK: i64 = 3;
/// Whoever makes them does so alone.
const TURN: i64 = 7_378_697_629_484_716_394;

/// The code of what is refused here; its words are ours.
pub(crate) const UNUSABLE: &str = "FL001";

/// A part of it, for a schema (with quotes), as a statement that makes it all where it is missing, and does nothing where it is there.
pub(crate) struct Part {
    schema: String,
    /// What is to be known of the schema first.
    unless: String,
    made: String,
    /// Whether it is missing, as an expression: for anybody, in a transaction of its own; and for whoever has waited for his turn in this one.
    /// What a session has looked for by its name it remembers, also as missing, past a turn that it waits for: through a pooler it may have looked.
    pub(crate) is_missing: String,
    still_missing: String,
    /// Which version of it is there.
    pub(crate) version: String,
    wanted: i64,
    /// Of what, and what to do where another one is there.
    what: &'static str,
    way_out: &'static str,
}
/// What every strategy needs.
pub(crate) fn common(schema: &str) -> Part {
    let made = concat!(
        include_str!("sql/tables.sql"),
        include_str!("sql/session.sql"),
        include_str!("sql/common.sql"),
        include_str!("sql/queue.sql"),
        include_str!("sql/others.sql")
    );
    let first =
        format!("INSERT INTO {schema}.fencelock_meta (version, store) VALUES ({VERSION}, gen_random_uuid());\n");
    Part {
        schema: schema.to_owned(),
        unless: String::new(),
        made: made.replace("{s}", schema) + &first,
        is_missing: format!("to_regclass({}) IS NULL", literal(&format!("{schema}.fencelock_meta"))),
        still_missing: format!(
            "NOT EXISTS (SELECT FROM pg_catalog.pg_class WHERE relname = 'fencelock_meta' \
             AND relnamespace = pg_catalog.to_regnamespace({}))",
            literal(schema)
        ),
        version: format!("(SELECT version FROM {schema}.fencelock_meta)"),
        wanted: VERSION,
        what: "the tables",
        way_out: "use the same version of fencelock everywhere: another schema is another set of locks",
    }
}
/// What comes to it for locks that are shared with ShedLock.
pub(crate) fn shedlock(schema: &str) -> Part {
    // None without a number or an end.
    let row = "s.name, coalesce(s.lock_until, 'infinity') AS lock_until, \
               CASE WHEN isfinite(s.locked_at) THEN s.locked_at ELSE 'epoch' END AS locked_at, \
               coalesce(s.locked_by, '') AS locked_by INTO l FROM {s}.shedlock s";
    let made = include_str!("sql/shedlock.sql").replace("{row}", row).replace("{s}", schema);
    // Two tables are two locks: whose search path finds which, only they know.
    let others = "SELECT quote_ident(n.nspname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                  WHERE c.relname = 'shedlock' AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't' LIMIT 1";
    let unless = format!(
        "IF to_regclass({}) IS NULL AND EXISTS ({others}) THEN\n\
         RAISE EXCEPTION USING ERRCODE = '{UNUSABLE}', MESSAGE = format('the table shedlock is in the schema %s, and not in %s', ({others}), {}), \
         HINT = 'name that schema in the URL, ?schema=NAME; or make a table shedlock in this one, if others share nothing with it';\n\
         END IF;\n",
        literal(&format!("{schema}.shedlock")),
        literal(schema),
    );
    let missing = format!("(SELECT shed FROM {schema}.fencelock_meta) IS NULL");
    Part {
        schema: schema.to_owned(),
        unless,
        made: made + &format!("UPDATE {schema}.fencelock_meta SET shed = {SHEDLOCK};\n"),
        is_missing: missing.clone(),
        still_missing: missing,
        version: format!("(SELECT shed FROM {schema}.fencelock_meta)"),
        wanted: SHEDLOCK,
        what: "the functions for ShedLock",
        way_out: "use the same version of fencelock everywhere; or stop those that use them, UPDATE fencelock_meta SET shed = NULL, \
                  and they are made anew",
    }
}
impl Part {
    /// Two that come together do so one after the other.
    pub(crate) fn script(&self) -> String {
        let Self { unless, made, still_missing, version, wanted, way_out, .. } = self;
        format!(
            "DO $fencelock$ BEGIN\nPERFORM pg_advisory_xact_lock({TURN});\nIF {still_missing} THEN\n{unless}{made}\
             ELSIF {version} <> {wanted} THEN\n\
             RAISE EXCEPTION USING ERRCODE = '{UNUSABLE}', MESSAGE = replace({}, '%', {version}::text), HINT = {};\n\
             END IF;\nEND $fencelock$;\n",
            literal(&self.is_other("%")),
            literal(way_out)
        )
    }
    fn is_other(&self, version: &str) -> String {
        format!("{} are of version {version}, and this is version {}", self.what, self.wanted)
    }
    /// Another version is there; what that is called, and what to do.
    pub(crate) fn refuses(&self, version: i64) -> Option<(String, &'static str)> {
        (version != self.wanted).then(|| (self.is_other(&version.to_string()), self.way_out))
    }
    /// What a role needs that only uses these.
    pub(crate) fn grants(&self, role: &str) -> String {
        let schema = &self.schema;
        // A quoted name may have blanks.
        let script = self.made.replace(&format!("{schema}."), "{s}.");
        let made = |what: &str| -> Vec<String> {
            let named = |line: &str| {
                let line = line.strip_prefix("CREATE ")?;
                let name = line.strip_prefix("OR REPLACE ").unwrap_or(line).strip_prefix(what)?;
                Some(name.trim_start_matches("IF NOT EXISTS ").split(['(', ' ']).next()?.to_owned())
            };
            script.lines().filter_map(named).collect()
        };
        let (tables, functions) = (made("TABLE "), made("FUNCTION "));
        let shrinks = |table: &&String| script.contains(&format!("DELETE FROM {table} "));
        let shrink: Vec<_> = tables.iter().filter(shrinks).map(String::as_str).collect();
        let mut grants = vec![
            format!("USAGE ON SCHEMA {schema}"),
            format!("SELECT, INSERT, UPDATE ON {}", tables.join(", ")),
            format!("EXECUTE ON FUNCTION {}", functions.join(", ")),
        ];
        if !shrink.is_empty() {
            grants.push(format!("DELETE ON {}", shrink.join(", ")));
        }
        grants.iter().map(|what| format!("GRANT {} TO {role};\n", what.replace("{s}", schema))).collect()
    }
}

#[cfg(test)]
mod tests {
    //! Planted to see it go red: names that end at the first blank.
    use super::*;

    #[test]
    fn a_schema_may_have_blanks() {
        let schema = "\"my locks\"";
        let told = common(schema).grants("app");
        assert!(told.contains("ON \"my locks\".fencelock_meta, \"my locks\".fencelock_"), "{told}");
        assert!(!told.contains("{s}") && !told.contains("\"my,"), "{told}");
    }
}
