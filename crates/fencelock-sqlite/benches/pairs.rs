//! Placeholder until the bare driver's side is written.
fn main() {}
