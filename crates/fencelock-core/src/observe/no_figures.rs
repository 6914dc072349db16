//! Without the feature `metrics` no figure is kept.
use crate::{keeper::Keeper, types::Request};
use std::time::Duration;

pub(super) const KEPT: bool = false;

pub(super) fn describe(_engine: &'static str) {}
pub(super) fn acquired(_engine: &'static str, _claim: &'static str, _outcome: &'static str, _wait: Duration) {}
pub(super) fn hold(_engine: &'static str, _claim: &'static str, _held: Duration) {}
pub(super) fn held(_engine: &'static str, _more: f64) {}
pub(super) fn waiting(_engine: &'static str, _more: f64) {}
pub(super) fn lost(_engine: &'static str, _reason: &'static str) {}
pub(super) fn renewed(_engine: &'static str, _outcome: &'static str) {}
pub(crate) fn timed<F>(_keeper: &Keeper, _operation: &'static str, call: F) -> F {
    call
}
pub(crate) fn asked<F>(_keeper: &Keeper, _request: &Request, call: F) -> F {
    call
}
