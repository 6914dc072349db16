//! The table of ShedLock, as others have made it.
use crate::{
    error::Fault,
    link::Link,
    wire::{
        reply::column,
        schema::{self, Letters},
    },
};

/// So many letters are written for whose it is: the hold's id, and up to 200 of a host.
const BY: usize = 243;

impl Link {
    /// Finds what comes to the tables for ShedLock, or makes it.
    pub(crate) async fn set_up_shedlock(&self) -> Result<(), Fault> {
        let known = "SELECT shed, sort FROM fencelock_meta WHERE one = 1 AND shed IS NOT NULL";
        let mut rows = self.again(known).await?;
        if rows.is_empty() {
            self.make(known, schema::shedlock(&self.letters().await?.unwrap_or_default())).await?;
            rows = self.again(known).await?;
        }
        let row = rows.first().ok_or(Fault::Answer)?;
        let (version, sort) = (column(row, 0).ok_or(Fault::Answer)?, column(row, 1).ok_or(Fault::Answer)?);
        if version != schema::SHEDLOCK.to_string() {
            return Err(Fault::Unusable {
                what: format!(
                    "the procedures for ShedLock are of version {version}, and this is version {}",
                    schema::SHEDLOCK
                ),
                hint: "use the same version of fencelock everywhere; or stop those that use them, UPDATE fencelock_meta SET shed = NULL, \
                       and they are made anew",
            });
        }
        match self.letters().await? {
            Some(letters) if letters.sort != sort => Err(Fault::Unusable {
                what: format!(
                    "the names in shedlock are compared by {}, and the procedures do so by {sort}",
                    letters.sort
                ),
                hint: "ALTER TABLE shedlock as it was; or stop those that use them, UPDATE fencelock_meta SET shed = NULL, and they are \
                       made anew",
            }),
            _ => Ok(()),
        }
    }
    /// Of the names in a table that is there.
    pub(crate) async fn letters(&self) -> Result<Option<Letters>, Fault> {
        let ask = "SELECT character_set_name, collation_name FROM information_schema.columns \
                   WHERE table_schema = DATABASE() AND table_name = 'shedlock' AND column_name = 'name'";
        let rows = self.again(ask).await?;
        let letters = |(set, sort): (&str, &str)| Letters { set: set.to_owned(), sort: sort.to_owned() };
        Ok(rows.first().and_then(|row| Some((column(row, 0)?, column(row, 1)?))).map(letters))
    }
    /// Whether it keeps what a lock needs; how long a name may be.
    pub(crate) async fn columns(&self) -> Result<usize, Fault> {
        let ask = "SELECT LOWER(c.column_name), c.data_type, c.datetime_precision, c.character_maximum_length, t.engine, \
                   c.character_set_name IS NOT NULL, (SELECT COUNT(*) FROM (SELECT i.index_name FROM information_schema.statistics i \
                     WHERE i.table_schema = DATABASE() AND i.table_name = 'shedlock' AND i.non_unique = 0 GROUP BY i.index_name \
                     HAVING COUNT(*) = 1 AND MAX(i.column_name = 'name' AND i.sub_part IS NULL)) keys_of_it) \
                   FROM information_schema.columns c \
                   JOIN information_schema.tables t ON t.table_schema = c.table_schema AND t.table_name = c.table_name \
                   WHERE c.table_schema = DATABASE() AND c.table_name = 'shedlock'";
        let (rows, mut longest) = (self.again(ask).await?, usize::MAX);
        for name in ["name", "lock_until", "locked_at", "locked_by"] {
            let unusable =
                |what: &str, hint| Err(Fault::Unusable { what: format!("{name} of the table shedlock {what}"), hint });
            let Some(row) = rows.iter().find(|row| column(row, 0) == Some(name)) else {
                return unusable("is not there", "make it as ShedLock's manual has it");
            };
            let kind = column(row, 1).ok_or(Fault::Answer)?;
            let size = |at| column(row, at).and_then(|size| size.parse::<usize>().ok());
            let is_text = column(row, 5) == Some("1");
            if column(row, 4) != Some("InnoDB") {
                return unusable("is in no row that can be locked", "ALTER TABLE shedlock ENGINE=InnoDB");
            }
            match name {
                "name" if column(row, 6) == Some("0") => {
                    return unusable("may be there twice", "make it the primary key, as ShedLock's manual has it");
                }
                "name" if is_text => longest = size(3).unwrap_or(longest),
                "locked_by" if is_text && size(3).is_some_and(|size| size >= BY) => {}
                "name" | "locked_by" => {
                    let what = format!("is a {kind} of {} letters", size(3).unwrap_or(0));
                    return unusable(&what, "make it a VARCHAR(255), as ShedLock's manual has it");
                }
                _ if matches!(kind, "timestamp" | "datetime") && size(2).is_some_and(|digits| digits >= 3) => {}
                _ => {
                    let what = format!("is a {kind} of {} digits", size(2).unwrap_or(0));
                    return unusable(&what, "make it a TIMESTAMP(3), as ShedLock's manual has it");
                }
            }
        }
        Ok(longest)
    }
}
