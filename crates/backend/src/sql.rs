//! `sql`: the rows of a query to PostgreSQL, MySQL or MariaDB. Each row is an item, with the names of its columns as keys.

#[cfg(feature = "sql")]
mod client;
mod config;
#[cfg(feature = "sql")]
mod placeholders;
#[cfg(feature = "sql")]
mod recorded;

pub use config::Config;

use std::sync::Arc;

use super::{Backend, Building, KindConfig};

impl KindConfig for Config {
    #[cfg(feature = "sql")]
    fn build(&self, building: &mut Building<'_>) -> Option<Arc<dyn Backend>> {
        Some(Arc::new(client::Sql::build(self, building)?))
    }

    #[cfg(not(feature = "sql"))]
    fn build(&self, building: &mut Building<'_>) -> Option<Arc<dyn Backend>> {
        building.error("this program was built without databases (the Cargo feature `sql`)");
        None
    }
}
