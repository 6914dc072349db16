//! Tables and procedures are made by whoever comes first.
use crate::{
    error::Fault,
    link::Link,
    wire::{reply::column, schema},
};
use fencelock_core::within;
use fencelock_database::CONNECT_TIMEOUT;
use mysql_async::{Conn as Session, Error, Row, prelude::Queryable};

impl Link {
    /// Makes what is missing. Two that come together do so one after the other; whoever breaks off leaves it to the next one, since the
    /// row that says that all is there comes last.
    ///
    /// *Invariant:* a procedure of this version is never taken away: somebody may call it already. The turn is a named lock, which is each node's
    /// own on Galera: two may make the same there, and the one who comes second finds it made.
    pub(crate) async fn make(&self, is_there: &str, script: Vec<String>) -> Result<(), Fault> {
        let mut session = self.dedicated().await?;
        let work = async {
            let turn = schema::TURN;
            let got: Option<Row> = session.query_first(format!("SELECT GET_LOCK({turn}, 20)")).await?;
            let known: Result<Option<Row>, _> = session.query_first(is_there).await;
            if !matches!(known, Ok(Some(_))) && got.is_some_and(|got| column(&got, 0) == Some("1")) {
                for statement in script {
                    make_one(&mut session, &statement).await?;
                }
            }
            session.query_drop(format!("DO RELEASE_LOCK({turn})")).await
        };
        within(8 * CONNECT_TIMEOUT, work).await.ok_or(Fault::Unanswered)?.map_err(|e| Fault::of(e).unmade())?;
        // Those that were there before have read none of it.
        self.give_up(&self.here().await?);
        Ok(())
    }
}
async fn make_one(session: &mut Session, statement: &str) -> Result<(), Error> {
    /// It is there; what two nodes wrote at once was refused to one of them.
    const MET: [u16; 4] = [1050, 1205, 1213, 1304];
    let mut tries = 0;
    loop {
        match make_unless_there(session, statement).await {
            Err(Error::Server(error)) if MET.contains(&error.code) && tries < 9 => tries += 1,
            end => return end,
        }
    }
}
async fn make_unless_there(session: &mut Session, statement: &str) -> Result<(), Error> {
    if let Some(procedure) = schema::procedure(statement) {
        let of = "FROM information_schema.routines WHERE routine_schema = DATABASE() AND routine_name";
        let there: Option<Row> = session.query_first(format!("SELECT routine_comment {of} = '{procedure}'")).await?;
        if let Some(comment) = there {
            if column(&comment, 0).is_some_and(|comment| statement.contains(&format!("COMMENT '{comment}'"))) {
                return Ok(());
            }
            session.query_drop(format!("DROP PROCEDURE IF EXISTS {procedure}")).await?;
        }
    }
    session.query_drop(statement).await
}
