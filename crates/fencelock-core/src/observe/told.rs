//! Subscribers are foreign code: what is called of them, and whose a span is.
use std::{
    future::Future,
    mem,
    ops::Deref,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
};
use tracing::{Span, dispatcher::with_default};

/// What is foreign, and may panic.
pub(super) fn outside<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}
/// By the subscriber of this span, whichever the thread has: its number says nothing to another one.
fn by<T>(span: &Span, call: impl FnOnce() -> T) -> T {
    match span.with_subscriber(|(_, dispatch)| dispatch.clone()) {
        Some(dispatch) => with_default(&dispatch, call),
        None => call(),
    }
}
/// Within this span. What is foreign is entering and leaving it: what is called is ours, and its panics are, too.
fn inside<T>(span: &Span, call: impl FnOnce() -> T) -> T {
    by(span, || {
        let entered = outside(|| span.enter());
        let done = call();
        outside(|| drop(entered));
        done
    })
}
pub(super) fn of<T>(span: &Span, call: impl FnOnce() -> T) -> Option<T> {
    outside(|| by(span, call))
}

/// A span that is copied and ends by its own subscriber.
#[derive(Debug)]
pub(crate) struct Told(Span);
impl Told {
    pub(crate) const fn none() -> Self {
        Self(Span::none())
    }
    pub(super) const fn new(span: Span) -> Self {
        Self(span)
    }
}
impl Deref for Told {
    type Target = Span;
    fn deref(&self) -> &Span {
        &self.0
    }
}
impl Clone for Told {
    fn clone(&self) -> Self {
        if self.is_none() { Self::none() } else { of(self, || self.0.clone()).map_or(Self::none(), Self) }
    }
}
impl Drop for Told {
    fn drop(&mut self) {
        if !self.is_none() {
            let span = mem::replace(&mut self.0, Span::none());
            let dispatch = span.with_subscriber(|(_, dispatch)| dispatch.clone());
            outside(|| match dispatch {
                Some(dispatch) => with_default(&dispatch, || drop(span)),
                None => drop(span),
            });
        }
    }
}

/// A future that runs, and ends, in a span and by its subscriber.
pub(crate) struct Within<'a, T> {
    span: Told,
    inner: Option<Pin<Box<dyn Future<Output = T> + Send + 'a>>>,
}
impl<'a, T> Within<'a, T> {
    pub(crate) fn new(span: Told, inner: impl Future<Output = T> + Send + 'a) -> Self {
        Self { span, inner: Some(Box::pin(inner)) }
    }
}
impl<T> Future for Within<'_, T> {
    type Output = T;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let this = self.get_mut();
        let Some(inner) = &mut this.inner else { return Poll::Pending };
        if this.span.is_none() {
            return inner.as_mut().poll(cx);
        }
        inside(&this.span, || inner.as_mut().poll(cx))
    }
}
impl<T> Drop for Within<'_, T> {
    fn drop(&mut self) {
        let inner = self.inner.take();
        if self.span.is_none() {
            return drop(inner);
        }
        inside(&self.span, || drop(inner));
    }
}
