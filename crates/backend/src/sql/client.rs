//! Runs the query: renders the values, logs in, reads all rows, or takes them from a recorded reply.

use std::{net::IpAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use serde_json::Value;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};
use url::Url;

use super::{
    config::{Config, Tls},
    placeholders,
};
use crate::{Backend, Building, Nature};
use domain::{
    document::{self, kind_of},
    error::{BackendError, ErrorKind},
    file::base_dir::BaseDir,
    generator::{Evidence, Outcome, ParameterSet, Query},
    replay::Sources,
    secret::Secrets,
};
use lang::{
    evaluator::{Context, Evaluator},
    scope::ValueType,
    template::Template,
};
use source::{Load, Reached, work_on};
use sql::{Address, Database, Encryption, Limits, Product, SqlError, Statement};

/// A query, ready to run.
#[derive(Debug)]
pub(super) struct Sql {
    pub(super) config: Config,
    address: Address,
    /// The database without login, as evidence and messages name it.
    pub(super) name: Url,
    bind: Vec<Template>,
    base: BaseDir,
    evaluator: Evaluator,
    permits: Semaphore,
    pub(super) sources: Option<Arc<dyn Sources>>,
    nature: Nature,
}

impl Sql {
    pub(super) fn build(config: &Config, building: &mut Building<'_>) -> Option<Self> {
        let context = building.context;
        let path = building.path.clone();
        building.problems.check_not_zero(&path.key("timeout"), config.timeout.0);
        building.key("password").check_secret(&config.password);
        let address = building.key("url").note(Address::parse(&config.url));
        for (key, is_zero) in [("maxRows", config.max_rows == 0), ("connections", config.connections == 0)] {
            if is_zero {
                building.key(key).error("it is at least 1");
            }
        }
        check_query(config, address.as_ref(), building);
        let mut at = building.key("bind");
        let bind: Option<Vec<Template>> =
            config.bind.iter().enumerate().map(|(index, source)| at.index(index).template(source)).collect();
        let address = address?;
        let name = building.key("url").note(Url::parse(&name(&address)))?;
        if config.tls == Tls::Disabled {
            if config.ca.is_some() {
                building.key("ca").mistake("without TLS nothing is verified", "remove `ca`, or `tls: disabled`");
            }
            if !address.host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback()) {
                let message = format!(
                    "rows come from {} in cleartext: everybody in between can read and change them",
                    address.host
                );
                building.key("tls").warning(message, "remove `tls: disabled`");
            }
        }
        Some(Self {
            name,
            address,
            bind: bind?,
            base: context.base.clone(),
            evaluator: context.evaluator.clone(),
            permits: Semaphore::new(config.connections.into()),
            sources: context.launchers.sources().cloned(),
            nature: building.nature(ValueType::Anything),
            config: config.clone(),
        })
    }

    /// The rows, each as the JSON of an object.
    async fn rows(&self, text: &str, values: &[String], deadline: Instant) -> Result<Vec<String>, BackendError> {
        let late = || BackendError::timeout(format!("{}: no rows within its `timeout`, or the deadline", self.name));
        let work = async {
            let _permit = self.permits.acquire().await;
            let password = self.config.password.read(&self.base).map_err(BackendError::unavailable)?;
            let ca = self.ca().await?;
            let encryption = match self.config.tls {
                Tls::Required => Encryption::Verified(ca.as_deref()),
                Tls::Disabled => Encryption::Cleartext,
            };
            let database =
                Database { address: &self.address, encryption, user: &self.config.user, password: password.expose() };
            let limits = Limits {
                rows: self.config.max_rows.into(),
                bytes: self.config.max_body.as_usize(),
                time: deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)),
            };
            let found = sql::rows(database, Statement { text, values }, limits).await;
            found.map_err(|error| self.explain(&error))
        };
        timeout_at(deadline, work).await.unwrap_or_else(|_| Err(late()))
    }

    async fn ca(&self) -> Result<Option<Vec<u8>>, BackendError> {
        let Some(file) = self.config.ca.as_ref().map(|file| self.base.resolve(file)) else { return Ok(None) };
        let read = tokio::fs::read(&file).await;
        let read = read.map_err(|error| BackendError::unavailable(format!("`ca` {}: {error}", file.display())))?;
        Ok(Some(read))
    }

    fn explain(&self, error: &SqlError) -> BackendError {
        let (kind, help) = match error {
            SqlError::Unreachable(_) => (ErrorKind::Unavailable, ""),
            SqlError::Denied(_) => (ErrorKind::Denied, "; check `user`, `password` and the rights of the user"),
            SqlError::Timeout(_) => (ErrorKind::Timeout, ""),
            SqlError::Query(_) => (ErrorKind::Unavailable, "; check `query`"),
            SqlError::TooManyRows(_) => (ErrorKind::InvalidOutput, "; select fewer, or raise `maxRows`"),
            SqlError::TooLong(_) => (ErrorKind::InvalidOutput, "; select fewer columns, or raise `maxBody`"),
            SqlError::Warned(_) => (ErrorKind::InvalidOutput, "; change `query` so that it runs without a warning"),
            SqlError::Unreadable(_) => (ErrorKind::InvalidOutput, ""),
        };
        BackendError::new(kind, format!("{}: {error}{help}", self.name))
    }
}

fn name(address: &Address) -> String {
    let scheme = match address.product {
        Product::Postgres => "postgres",
        Product::MySql => "mysql",
    };
    let host = if address.host.contains(':') { format!("[{}]", address.host) } else { address.host.clone() };
    format!("{scheme}://{host}:{}/{}", address.port, address.database)
}

/// The sets of `rows`, a list of objects.
fn read(rows: &str) -> Result<Vec<ParameterSet>, BackendError> {
    let invalid = |why: String| BackendError::invalid_output(format!("a row cannot be read: {why}"));
    let Value::Array(rows) = document::parse(rows.as_bytes()).map_err(|error| invalid(error.to_string()))? else {
        return Err(invalid("not a list".to_owned()));
    };
    let read_row = |row: Value| match row {
        Value::Object(row) => Ok(ParameterSet(row)),
        other => Err(invalid(format!("{}, not an object", kind_of(&other)))),
    };
    rows.into_iter().map(read_row).collect()
}

/// Notes what is wrong with the text of the query before a database sees it.
fn check_query(config: &Config, address: Option<&Address>, building: &mut Building<'_>) {
    let mut at = building.key("query");
    if config.query.trim().is_empty() {
        at.error("it is empty");
    } else if config.query.contains("{{") {
        let help = "write a placeholder, and the template below `bind`: so no value can change the query";
        at.mistake("it is not a template", help);
    } else if config.query.trim_end().ends_with(';') {
        at.mistake("it ends with `;`, but stands within another query", "remove the `;`");
    } else if let Some(address) = address {
        let needed = placeholders::count(&config.query, address.product == Product::Postgres);
        if needed != config.bind.len() {
            let message = format!("it has {needed} placeholder(s), and `bind` has {} value(s)", config.bind.len());
            at.mistake(
                message,
                "each placeholder needs one value: `$1`, `$2` … in PostgreSQL, `?` in MySQL and MariaDB",
            );
        }
    }
}

#[async_trait]
impl Backend for Sql {
    async fn fetch(&self, query: &Query) -> Result<Outcome, BackendError> {
        let deadline = query.deadline.min(Instant::now() + self.config.timeout.0);
        let context = Context::of_input(query, &self.evaluator).until(deadline);
        let mut values = Vec::with_capacity(self.bind.len());
        for (index, template) in self.bind.iter().enumerate() {
            let value = context.render(template).await;
            values.push(value.map_err(|error| {
                error.within(format!("bind[{index}]")).into_backend_error(BackendError::invalid_input)
            })?);
        }
        let of_query = |error: BackendError| BackendError {
            evidence: vec![Evidence::unknown(self.name.as_str(), error.kind.as_str())],
            ..error
        };
        let rows = if let Some(replayed) = self.replayed(&values) {
            replayed
        } else {
            let rows =
                self.rows(&self.config.query, &values, deadline).await.map(|rows| format!("[{}]", rows.join(",")));
            self.note(&values, &rows);
            rows
        };
        let rows = rows.map_err(of_query)?;
        let sets = work_on(Load::Bytes(rows.len()), move || read(&rows)).await;
        let sets = sets.map_err(|error| of_query(error.within(&self.name)))?;
        Ok(Outcome::of_list(sets, format!("SELECT {}", self.name), "no rows"))
    }

    fn nature(&self) -> &Nature {
        &self.nature
    }

    async fn reach(&self, deadline: Instant) -> Vec<Reached> {
        // Logs in, and runs no query of a call.
        let result = self.rows("SELECT 1 AS one", &[], deadline).await.map(|_| "answers".to_owned());
        vec![Reached { source: self.name.to_string(), result, needs: Some("to read the tables of the query") }]
    }

    fn secrets(&self) -> Secrets {
        self.config.password.read(&self.base).into_iter().collect()
    }
}
