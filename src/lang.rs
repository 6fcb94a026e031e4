//! The two languages of a configuration, [`template`] (Jinja) and [`expression`] (CEL), and [`evaluator`], which runs what may be costly.

pub mod evaluator;
pub mod expression;
pub mod scope;
pub mod template;
