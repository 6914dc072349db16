//! What every engine has to show between processes, some of which are killed or stopped. Exclusion is judged by a counter that is no
//! atomic one and by intervals on the boot clock.
#![allow(missing_docs, reason = "each story says in its figures what it shows")]
mod cancel;
mod crash;
mod cuts;
mod election;
mod failover;
mod fair;
mod pause;
mod sessions;
mod spans;

pub use cancel::cancels;
pub use crash::{at_the_release, fresh_head_waiter, head_waiter, holder};
pub use cuts::wake_ups;
pub use election::leaders;
pub use failover::{Cluster, leaders_killed};
pub use fair::{order, starvation};
pub use pause::{head_waiter as stopped_head_waiter, holder as stopped_holder};
pub use sessions::{killed as killed_session, stopped as stopped_session};
pub use spans::{cells, downgrades, exclusion, increments, permits, permits_in, readers_and_writers, weights};
