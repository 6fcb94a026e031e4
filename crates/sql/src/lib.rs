//! Read-only queries to PostgreSQL, MySQL and MariaDB. Each row comes as the JSON text of an object, made by the server itself: so each type of
//! a column has the form that people know from there, and texts in any encoding come as UTF-8.
//!
//! Start at [`rows`]. Used by the backend `sql`, behind a Cargo feature of the same name. It has no configuration and no secrets of its own.
//!
//! Each query has a connection of its own. So a rotated password, a failover and a new address need no special case, and nothing that a query sets
//! stays for the next one. The query is wrapped as a table expression: more than one statement, and anything but a `SELECT`, is a syntax error at the
//! server, before the read-only transaction refuses it.

mod address;
mod error;
mod mysql;
mod postgres;

use std::time::Duration;

use futures_util::{Stream, StreamExt as _};

pub use self::{
    address::{Address, AddressError, Product},
    error::SqlError,
};

/// A database, and how to log in there.
#[derive(Clone, Copy)]
pub struct Database<'a> {
    /// Where it is.
    pub address: &'a Address,
    /// How the connection is protected.
    pub encryption: Encryption<'a>,
    /// The user.
    pub user: &'a str,
    /// The password.
    pub password: &'a str,
}

/// How the connection is protected.
#[derive(Debug, Clone, Copy)]
pub enum Encryption<'a> {
    /// TLS with a certificate for the host's name, by one of these CAs in PEM, or by the public ones.
    Verified(Option<&'a [u8]>),
    /// None: everybody on the way reads the password's proof and the rows.
    Cleartext,
}

/// The limits of a query.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most rows. More are an error, and never cut off.
    pub rows: u64,
    /// The most bytes of all rows as JSON.
    pub bytes: usize,
    /// How long the server works on the query before it gives up by itself.
    pub time: Duration,
}

/// A query and the values for its placeholders, all of them texts.
#[derive(Debug, Clone, Copy)]
pub struct Statement<'a> {
    /// One `SELECT`.
    pub text: &'a str,
    /// The values for `$1`, `$2` … of PostgreSQL, and for each `?` of MySQL, in order.
    pub values: &'a [String],
}

/// The rows of `statement`, each as the JSON text of an object, in the server's order.
///
/// # Errors
/// When the server cannot be reached or refuses, or the rows are over the limits: never a part of the rows.
pub async fn rows(database: Database<'_>, statement: Statement<'_>, limits: Limits) -> Result<Vec<String>, SqlError> {
    match database.address.product {
        Product::Postgres => postgres::rows(database, statement, limits).await,
        Product::MySql => mysql::rows(database, statement, limits).await,
    }
}

/// Reads all of `found`, within `limits`.
async fn collect(
    mut found: impl Stream<Item = Result<String, sqlx::Error>> + Unpin,
    limits: Limits,
) -> Result<Vec<String>, SqlError> {
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while let Some(row) = found.next().await {
        let row = row.map_err(SqlError::of)?;
        bytes += row.len();
        if rows.len() as u64 >= limits.rows {
            return Err(SqlError::TooManyRows(limits.rows));
        }
        if bytes > limits.bytes {
            return Err(SqlError::TooLong(limits.bytes));
        }
        rows.push(row);
    }
    Ok(rows)
}
