//! MySQL and MariaDB. `JSON_OBJECT` makes the rows. It needs the names of the columns, which the server reports when the query is prepared.

use futures_util::StreamExt as _;
use sqlx::{
    AssertSqlSafe, Column as _, ConnectOptions as _, Connection as _, Executor as _, Row as _, SqlSafeStr as _,
    Statement as _,
    mysql::{MySqlConnectOptions, MySqlConnection, MySqlSslMode},
    query::Query,
};

use crate::{Database, Encryption, Limits, SqlError, Statement, collect};

pub(crate) async fn rows(
    database: Database<'_>,
    statement: Statement<'_>,
    limits: Limits,
) -> Result<Vec<String>, SqlError> {
    let mut connection = options(database).connect().await.map_err(SqlError::of)?;
    let rows = select(&mut connection, statement, limits).await?;
    // Nothing was written, so nothing is lost if this fails.
    let _ = connection.close().await;
    Ok(rows)
}

async fn select(
    connection: &mut MySqlConnection,
    statement: Statement<'_>,
    limits: Limits,
) -> Result<Vec<String>, SqlError> {
    let limit = time_limit(connection, limits).await?;
    connection.execute(AssertSqlSafe(limit)).await.map_err(SqlError::of)?;
    connection.execute("START TRANSACTION READ ONLY").await.map_err(SqlError::of)?;
    // On a line of its own, so that a comment at the query's end does not take the bracket with it.
    let table = format!("(\n{}\n) AS of_query", statement.text);
    let all = AssertSqlSafe(format!("SELECT * FROM {table}")).into_sql_str();
    let prepared = (&mut *connection).prepare(all).await.map_err(SqlError::of)?;
    let columns: Vec<String> = prepared.columns().iter().map(|column| pair(column.name())).collect();
    drop(prepared);
    // One row more than allowed shows that there are more.
    let text =
        format!("SELECT JSON_OBJECT({}) FROM {table} LIMIT {}", columns.join(", "), limits.rows.saturating_add(1));
    let query = statement.values.iter().fold(sqlx::query(AssertSqlSafe(text)), Query::bind);
    // Unchecked, as it is of the type JSON at MySQL and a text at MariaDB.
    let found = query.persistent(false).fetch(&mut *connection).map(|row| row?.try_get_unchecked::<String, _>(0));
    let rows = collect(found, limits).await?;
    check_warnings(connection).await?;
    Ok(rows)
}

/// Refuses rows that the server warned of. It cuts off recursive queries and the texts of `GROUP_CONCAT`, and compares texts with numbers as zeros,
/// and warns only.
async fn check_warnings(connection: &mut MySqlConnection) -> Result<(), SqlError> {
    let warnings = connection.fetch_all("SHOW WARNINGS").await.map_err(SqlError::of)?;
    for warning in &warnings {
        let column = |index: usize| warning.try_get_unchecked::<String, _>(index).map_err(SqlError::of);
        if column(0)? != "Note" {
            return Err(SqlError::Warned(column(2)?));
        }
    }
    Ok(())
}

/// The statement that limits the time of a query: MariaDB and MySQL have another variable and another unit each.
async fn time_limit(connection: &mut MySqlConnection, limits: Limits) -> Result<String, SqlError> {
    let version = connection.fetch_one("SELECT VERSION()").await.map_err(SqlError::of)?;
    let version: String = version.try_get(0).map_err(SqlError::of)?;
    Ok(if version.contains("MariaDB") {
        format!("SET SESSION max_statement_time = {}", limits.time.as_secs_f64())
    } else {
        format!("SET SESSION max_execution_time = {}", limits.time.as_millis())
    })
}

/// `column` as a key and its value.
fn pair(column: &str) -> String {
    // A backslash is an escape only in a text, and not with the mode NO_BACKSLASH_ESCAPES. A hexadecimal literal has neither.
    let name = base16ct::lower::encode_string(column.as_bytes());
    format!("CONVERT(X'{name}' USING utf8mb4), of_query.`{}`", column.replace('`', "``"))
}

fn options(database: Database<'_>) -> MySqlConnectOptions {
    let address = database.address;
    let options = MySqlConnectOptions::new()
        .host(&address.host)
        .port(address.port)
        .database(&address.database)
        .username(database.user)
        .password(database.password)
        // The server's own mode, as other clients have it.
        .pipes_as_concat(false)
        .no_engine_substitution(false)
        .charset("utf8mb4");
    match database.encryption {
        Encryption::Verified(None) => options.ssl_mode(MySqlSslMode::VerifyIdentity),
        Encryption::Verified(Some(ca)) => options.ssl_mode(MySqlSslMode::VerifyIdentity).ssl_ca_from_pem(ca.to_vec()),
        Encryption::Cleartext => options.ssl_mode(MySqlSslMode::Disabled),
    }
}
