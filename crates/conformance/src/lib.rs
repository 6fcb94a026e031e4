//! The contract of Argo CD's plugin generator as a suite for any plugin server: the rules that a server must or should follow, and replies that
//! would make Argo CD delete Applications by mistake.
//!
//! Start at [`suite::run`]. The suite sends requests as Argo CD does ([`target`]), and [`evaluate`] reads each reply as Argo CD does. [`cases`] are
//! the questions, [`rules`] lists the rules, and `checks` applies them. [`upstream`] is a fault-injecting proxy before the plugin's source. `kept`
//! is the hash of an answer, which is all that the suite stores of it. [`report`] prints the results. [`incidents`] plays documented incidents.

pub mod cases;
mod checks;
pub mod evaluate;
pub mod incidents;
mod kept;
pub mod report;
pub mod rules;
pub mod suite;
pub mod target;
pub mod upstream;
