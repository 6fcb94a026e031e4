//! The two languages of a configuration. Start at [`template::Template`] (Jinja) and [`expression::Expression`] (CEL). Both are
//! checked against the names in a [`scope::NameScope`] when the configuration is read. [`evaluator`] runs those that may be costly,
//! in processes of its own.

pub mod evaluator;
pub mod expression;
pub mod scope;
pub mod template;
