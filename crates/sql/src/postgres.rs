//! PostgreSQL. `row_to_json` makes the rows; texts are UTF-8 in each connection, whatever the database's encoding is.

use futures_util::StreamExt as _;
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, Row as _,
    postgres::{PgConnectOptions, PgSslMode},
    query::Query,
};

use crate::{Database, Encryption, Limits, SqlError, Statement, collect};

pub(crate) async fn rows(
    database: Database<'_>,
    statement: Statement<'_>,
    limits: Limits,
) -> Result<Vec<String>, SqlError> {
    let mut connection = options(database).connect().await.map_err(SqlError::of)?;
    let begin = format!("BEGIN READ ONLY; SET LOCAL statement_timeout = {}", limits.time.as_millis());
    connection.execute(AssertSqlSafe(begin)).await.map_err(SqlError::of)?;
    // On a line of its own, so that a comment at the query's end does not take the bracket with it. One row more than allowed shows that there are more.
    let text = format!(
        "SELECT row_to_json(of_query)::text FROM (\n{}\n) AS of_query LIMIT {}",
        statement.text,
        limits.rows.saturating_add(1).min(i64::MAX as u64)
    );
    let query = statement.values.iter().fold(sqlx::query(AssertSqlSafe(text)), Query::bind);
    let found = query.persistent(false).fetch(&mut connection).map(|row| row?.try_get::<String, _>(0));
    let rows = collect(found, limits).await?;
    // Nothing was written, so nothing is lost if this fails.
    let _ = connection.close().await;
    Ok(rows)
}

fn options(database: Database<'_>) -> PgConnectOptions {
    let address = database.address;
    // Not `new`, which would also read passwords from a file of the user. All that variables such as PGHOST could set is set here.
    let options = PgConnectOptions::new_without_pgpass()
        .host(&address.host)
        .port(address.port)
        .database(&address.database)
        .username(database.user)
        .password(database.password)
        .application_name("appset-gateway");
    match database.encryption {
        Encryption::Verified(None) => options.ssl_mode(PgSslMode::VerifyFull),
        Encryption::Verified(Some(ca)) => options.ssl_mode(PgSslMode::VerifyFull).ssl_root_cert_from_pem(ca.to_vec()),
        Encryption::Cleartext => options.ssl_mode(PgSslMode::Disable),
    }
}
