//! Where a database is: `postgres://host:5432/database`.

use url::Url;

/// The product, which decides the protocol and the dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Product {
    /// PostgreSQL, and what speaks its protocol.
    Postgres,
    /// MySQL and MariaDB.
    MySql,
}

/// Where a database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Its product.
    pub product: Product,
    /// The host's name or address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The name of the database.
    pub database: String,
}

/// Why a text is not the address of a database.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It is not a URL.
    #[error("it is not a URL such as `postgres://db.example.com/shop`: {0}")]
    NotAUrl(#[from] url::ParseError),
    /// The scheme is of no product that this crate speaks with.
    #[error("`{0}:` is neither `postgres:` nor `mysql:` (which is for MariaDB too)")]
    OtherScheme(String),
    /// There is a user or a password in it.
    #[error("it holds a user or a password; they have keys of their own, `user` and `password`")]
    HasLogin,
    /// There are options in it.
    #[error("it has `?` or `#`; options such as TLS have keys of their own")]
    HasOptions,
    /// The host is missing.
    #[error("it names no host")]
    NoHost,
    /// The database is missing.
    #[error("it names no database: `{0}://host/database`")]
    NoDatabase(&'static str),
}

impl Address {
    /// Reads `text`.
    ///
    /// # Errors
    /// When it is not such a URL, or holds more than an address.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let url = Url::parse(text)?;
        let (product, scheme, usual_port) = match url.scheme() {
            "postgres" | "postgresql" => (Product::Postgres, "postgres", 5432),
            "mysql" | "mariadb" => (Product::MySql, "mysql", 3306),
            other => return Err(AddressError::OtherScheme(other.to_owned())),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(AddressError::HasLogin);
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(AddressError::HasOptions);
        }
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(AddressError::NoHost)?;
        let database = url.path().trim_start_matches('/');
        if database.is_empty() || database.contains(['/', '%']) {
            return Err(AddressError::NoDatabase(scheme));
        }
        // An IPv6 address stands in brackets in a URL only.
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { product, host, port: url.port().unwrap_or(usual_port), database: database.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(product: Product, host: &str, port: u16) -> Address {
        Address { product, host: host.to_owned(), port, database: "shop".to_owned() }
    }

    #[test]
    fn an_address_has_a_product_a_host_and_a_database() {
        assert_eq!(Address::parse("postgres://db/shop"), Ok(address(Product::Postgres, "db", 5432)));
        assert_eq!(Address::parse("postgresql://db.x.y:6432/shop"), Ok(address(Product::Postgres, "db.x.y", 6432)));
        assert_eq!(Address::parse("mysql://[::1]:3307/shop"), Ok(address(Product::MySql, "::1", 3307)));
        assert_eq!(Address::parse("mariadb://127.0.0.1/shop"), Ok(address(Product::MySql, "127.0.0.1", 3306)));
    }

    #[test]
    fn anything_else_is_refused() {
        for (text, error) in [
            ("sqlite:///tmp/x", AddressError::OtherScheme("sqlite".to_owned())),
            ("postgres://me@db/shop", AddressError::HasLogin),
            ("postgres://:x@db/shop", AddressError::HasLogin),
            ("postgres://db/shop?sslmode=disable", AddressError::HasOptions),
            ("postgres:///shop", AddressError::NoHost),
            ("mysql://db", AddressError::NoDatabase("mysql")),
            ("mysql://db/", AddressError::NoDatabase("mysql")),
            ("postgres://db/a/b", AddressError::NoDatabase("postgres")),
        ] {
            assert_eq!(Address::parse(text), Err(error), "{text}");
        }
        assert!(matches!(Address::parse("db/shop"), Err(AddressError::NotAUrl(_))));
    }
}
