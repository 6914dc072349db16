//! The highest tokens that this client has seen, sent along so that tokens rise even over an engine's lost data (SAFETY T1).
use crate::types::{Grant, Name, Token};
use foldhash::HashMap;
use std::sync::{Mutex, PoisonError};

/// Above this many names the table starts anew: the server's time, which is kept, covers what is forgotten unless the token
/// ran ahead of it.
const NAMES: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Floors(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    tokens: HashMap<Name, i64>,
    server_micros: i64,
}
impl Floors {
    pub(crate) fn of(&self, name: &Name) -> Option<Token> {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Token::new(inner.tokens.get(name).copied().unwrap_or(0).max(inner.server_micros))
    }
    pub(crate) fn saw(&self, grant: &Grant) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.server_micros = inner.server_micros.max(grant.server_micros);
        let number = grant.token.get();
        if let Some(seen) = inner.tokens.get_mut(&grant.name) {
            *seen = number.max(*seen);
            return;
        }
        if inner.tokens.len() >= NAMES {
            inner.tokens.clear();
        }
        inner.tokens.insert(grant.name.clone(), number);
    }
}
