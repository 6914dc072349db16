//! The table of ShedLock, as others have made it.
use crate::{error::Fault, link::Link, wire::call::literal};

/// So many letters are written for whose it is: the hold's id, and up to 200 of a host.
const BY: usize = 243;

impl Link {
    /// Whether it keeps what a lock needs; how long a name may be.
    pub(crate) async fn columns(&self) -> Result<usize, Fault> {
        let schema = self.place().ok_or(Fault::Closed)?.schema.as_str();
        let ask = format!(
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod), c.relkind IN ('r', 'p') AND c.relpersistence = 'p', \
             EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indimmediate \
               AND i.indpred IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum AND i.indcollation[0] = a.attcollation) \
             FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.oid = to_regclass({}) AND NOT a.attisdropped",
            literal(&format!("{schema}.shedlock"))
        );
        let (rows, mut longest) = (self.again(&ask).await?, usize::MAX);
        for column in ["name", "lock_until", "locked_at", "locked_by"] {
            let unusable = |what: &str, hint| {
                Err(Fault::Unusable { what: format!("{column} of the table shedlock {what}"), hint })
            };
            let Some(row) = rows.iter().find(|row| row.get(0) == Some(column)) else {
                return unusable("is not there", "make it as ShedLock's manual has it");
            };
            let kind = row.get(1).ok_or(Fault::Answer)?;
            let size = kind.split(['(', ')']).nth(1).and_then(|size| size.parse::<usize>().ok());
            // A name is looked for as a text, which no index on letters of a fixed number knows.
            let is_text = kind == "text" || kind.starts_with("character varying");
            if row.get(2) != Some("t") {
                return unusable(
                    "is not kept over a crash",
                    "ALTER TABLE shedlock SET LOGGED: it has to be a table, and no view",
                );
            }
            match column {
                "name" if row.get(3) != Some("t") => {
                    return unusable("may be there twice", "make it the primary key, as ShedLock's manual has it");
                }
                "name" if is_text => longest = size.unwrap_or(longest),
                "locked_by" if is_text && size.is_none_or(|size| size >= BY) => {}
                "name" | "locked_by" => {
                    return unusable(&format!("is a {kind}"), "make it a varchar(255), as ShedLock's manual has it");
                }
                _ if kind.ends_with("without time zone") && size.is_none_or(|digits| digits >= 3) => {}
                _ => {
                    let hint = "make it a timestamp, without a zone, as ShedLock's manual has it";
                    return unusable(&format!("is a {kind}"), hint);
                }
            }
        }
        Ok(longest)
    }
}
