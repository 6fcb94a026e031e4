//! Why there are no rows.

use sqlx::error::DatabaseError;

/// Why a query has no rows.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    /// The server cannot be reached, or the connection broke.
    #[error("the database cannot be reached: {0}")]
    Unreachable(String),
    /// The server refuses the login or a right.
    #[error("the database refuses access: {0}")]
    Denied(String),
    /// The server or this side gave up after the time of the query.
    #[error("the query took too long: {0}")]
    Timeout(String),
    /// The server does not run the query.
    #[error("the database does not run the query: {0}")]
    Query(String),
    /// There are more rows than allowed.
    #[error("the query has more than {0} rows")]
    TooManyRows(u64),
    /// The rows are longer than allowed.
    #[error("the rows have more than {0} bytes as JSON")]
    TooLong(usize),
    /// The server has rows, and warns of them.
    #[error("the database warns of the rows: {0}")]
    Warned(String),
    /// The reply is not one of this protocol.
    #[error("the database's reply cannot be read: {0}")]
    Unreadable(String),
}

impl SqlError {
    /// The error that sqlx reports.
    pub(crate) fn of(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(error) => Self::of_server(&*error),
            sqlx::Error::Io(error) => Self::Unreachable(error.to_string()),
            sqlx::Error::Tls(error) => Self::Unreachable(format!("TLS: {error}")),
            sqlx::Error::Configuration(error) => Self::Unreachable(error.to_string()),
            other => Self::Unreadable(other.to_string()),
        }
    }

    /// The error that the server reports. Codes: <https://www.postgresql.org/docs/current/errcodes-appendix.html>,
    /// <https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html>, <https://mariadb.com/kb/en/mariadb-error-codes/>.
    fn of_server(error: &dyn DatabaseError) -> Self {
        let code = error.code().unwrap_or_default();
        let message = format!("{} (SQLSTATE {code})", error.message());
        let number =
            error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>().map(sqlx::mysql::MySqlDatabaseError::number);
        match (&*code, number) {
            // Wrong login; no right to a table or column; no right to the database.
            ("28000" | "28P01" | "42501", None) | (_, Some(1044 | 1045 | 1142 | 1143 | 1227 | 1370 | 1698)) => {
                Self::Denied(message)
            }
            // Cancelled, which the statement's own time limit does too.
            ("57014", None) | (_, Some(1969 | 3024 | 1317)) => Self::Timeout(message),
            // Too many connections, a server that starts or ends, a standby in conflict with its primary.
            ("53300" | "57P01" | "57P02" | "57P03" | "40001", None) | (_, Some(1040 | 1053 | 1203 | 1226)) => {
                Self::Unreachable(message)
            }
            _ => Self::Query(message),
        }
    }
}
