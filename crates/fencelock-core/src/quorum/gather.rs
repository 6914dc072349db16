//! Calls to several nodes, polled in place: no task, no channel, and every one is on its way before the first answer is looked at.
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

pub(super) type Call<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What is asked of nodes, by their number.
pub(super) struct Gather<T>(Vec<(usize, Call<T>)>);
impl<T> Default for Gather<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}
impl<T> Gather<T> {
    pub(super) fn ask(&mut self, node: usize, call: impl Future<Output = T> + Send + 'static) {
        self.0.push((node, Box::pin(call)));
    }
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub(super) fn asks(&self, node: usize) -> bool {
        self.0.iter().any(|(of, _)| *of == node)
    }
    /// Waits for all.
    pub(super) async fn all(mut self) -> Vec<(usize, T)> {
        let mut answers = Vec::with_capacity(self.0.len());
        while !self.is_empty() {
            answers.extend(self.some(|| false).await);
        }
        answers
    }
    /// The answers that are there, as soon as there is one; none if nothing is asked any more, or if `enough` is so after all were
    /// polled. What is not answered is not lost when this is dropped.
    pub(super) async fn some(&mut self, enough: impl Fn() -> bool) -> Vec<(usize, T)> {
        poll_fn(|cx| {
            let mut answers = Vec::new();
            let mut at = 0;
            // In the order in which they were asked: a release leaves the node that others wait on to the last.
            while at < self.0.len() {
                let (node, call) = &mut self.0[at];
                match call.as_mut().poll(cx) {
                    Poll::Ready(answer) => {
                        answers.push((*node, answer));
                        drop(self.0.remove(at));
                    }
                    Poll::Pending => at += 1,
                }
            }
            if answers.is_empty() && !self.0.is_empty() && !enough() {
                return Poll::Pending;
            }
            Poll::Ready(answers)
        })
        .await
    }
    /// Those that have not been answered.
    pub(super) fn rest(self) -> Vec<(usize, Call<T>)> {
        self.0
    }
}
