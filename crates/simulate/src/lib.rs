//! The whole system under a seed, judged from outside.
//!
//! Real are the engine with its routes, guard and cache, the protocol of replicas, and push. Simulated are time, links, the store, sources with a
//! ground truth, senders of webhooks, clocks, operators, and Argo CD's controller with its API server. One seed is one history. The invariants ([`history::Invariant`]) are judged
//! by the truth, and by the actions of Argo CD: nothing of the gateway's own view counts.
//!
//! Start at [`run::run`]. A run:
//!
//! - [`plan`] has the events beside the calls, and follows from a [`seed`].
//! - [`world`] starts everything and carries the plan out: [`fleet`] has the processes ([`process`]) and their files ([`volume`]) on disks ([`disk`]), [`link`] the store and the ways to it,
//!   [`sources`] the sources of the routes, [`settings`] the routes, [`argocd`] the controller, [`api`] its API server.
//! - [`truth`] is the state of the world, and [`oracle`] judges by it.
//! - [`pace`] leaves out the time in which nothing happens.

pub mod api;
pub mod argocd;
pub mod clock;
pub mod disk;
pub mod fleet;
pub mod history;
pub mod link;
pub mod oracle;
pub mod pace;
pub mod plan;
pub mod process;
pub mod run;
pub mod seed;
pub mod settings;
pub mod sources;
pub mod truth;
pub mod volume;
pub(crate) mod world;
