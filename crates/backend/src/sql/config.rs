//! The configuration of the `sql` backend.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use domain::{
    secret::SecretRef,
    units::{ByteSize, HumanDuration},
};

/// A query, and the database that runs it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "SqlBackend")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The database: `postgres://host:5432/database`, or `mysql://host:3306/database` for MySQL and MariaDB. Without user, password and options.
    pub url: String,
    /// The user. It needs the right to read the tables of the query, and no other.
    pub user: String,
    /// The user's password. It is read at each query.
    pub password: SecretRef,
    /// One `SELECT`. `$1`, `$2` … (PostgreSQL) or `?` (MySQL, MariaDB) stand for the values of `bind`; no value ever becomes part of the text.
    pub query: String,
    /// Templates of the values for the placeholders, in their order. They can use `params` and `applicationSet`, in a later step of a pipeline
    /// also `items`, and below `each` also `item`. The values are texts: write `$1::int` in PostgreSQL where a number is needed.
    #[serde(default)]
    pub bind: Vec<String>,
    /// The protection of the connection: `required` is TLS with a certificate for the host of `url`, `disabled` is none.
    #[serde(default)]
    pub tls: Tls,
    /// A PEM file with the CAs of the database, relative to the configuration file. The public CAs unless set. It is read at each query.
    pub ca: Option<PathBuf>,
    /// The most rows. More are an error, and never cut off.
    #[serde(default = "default_max_rows")]
    #[schemars(range(min = 1))]
    pub max_rows: u32,
    /// The largest size of all rows, as JSON.
    #[serde(default = "default_max_body")]
    pub max_body: ByteSize,
    /// How long a query may take, with the login. The database gives up after this time too.
    #[serde(default = "default_timeout")]
    pub timeout: HumanDuration,
    /// How many connections are open at once. Each query opens a new one.
    #[serde(default = "default_connections")]
    #[schemars(range(min = 1))]
    pub connections: u16,
}

/// The protection of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Tls {
    /// TLS, with a certificate for the host's name by a known CA.
    #[default]
    Required,
    /// No TLS: everybody on the way can read the rows.
    Disabled,
}

const fn default_max_rows() -> u32 {
    10_000
}

const fn default_max_body() -> ByteSize {
    ByteSize::mib(8)
}

const fn default_timeout() -> HumanDuration {
    HumanDuration::from_secs(10)
}

const fn default_connections() -> u16 {
    4
}
