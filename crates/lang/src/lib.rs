//! The two languages of a configuration. Start at [`template::Template`] (Jinja) and [`expression::Expression`] (CEL). Both are
//! checked against the names in a [`scope::NameScope`] when the configuration is read.
//!
//! `functions` are those that this project adds to both.
//!
//! `template/bound` and `expression/bound` compute an upper bound of the cost. If it is small, the template or expression runs in this
//! process. Otherwise [`evaluator`] runs it in a process with limits of memory and time, which is killed when it exceeds them.

pub mod evaluator;
pub mod expression;
mod functions;
pub mod scope;
pub mod template;

pub use functions::label;
