//! The backend `sql` against real databases: what they answer, and each way in which they fail, judged as Argo CD reads it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::{
    Reply, TestApp,
    authority::Ca,
    database::{Database, PASSWORD, Product, USER},
};

/// The database has another encoding than UTF-8. Statements of the server, an empty line, and those of the database `shop`.
const POSTGRES: &str = r#"CREATE DATABASE shop ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'
CREATE USER gateway PASSWORD 'right-password'

CREATE TABLE tenants (number int, name text, size numeric(20,2), active bool, made timestamp, tags text[], meta json)
INSERT INTO tenants VALUES (1, U&'Z\00FCrich', 12.50, true, '2026-01-02 03:04:05', '{a,b}', '{"k": [1]}')
INSERT INTO tenants VALUES (2, 'Bern', 9007199254740993, false, NULL, '{}', NULL)
INSERT INTO tenants VALUES (3, 'Basel', 0.1, true, NULL, NULL, NULL)
CREATE TABLE salaries (name text)
GRANT SELECT ON tenants TO gateway
"#;

const MARIADB: &str = r#"CREATE DATABASE shop;
USE shop;
CREATE TABLE tenants (number int, name varchar(20) CHARACTER SET latin1, size decimal(20,2), active bool, made datetime, `odd 'name"` text) DEFAULT CHARSET latin1;
INSERT INTO tenants VALUES (1, _latin1 X'5AFC72696368', 12.50, true, '2026-01-02 03:04:05', 'x');
INSERT INTO tenants VALUES (2, 'Bern', 9007199254740993, false, NULL, NULL);
INSERT INTO tenants VALUES (3, 'Basel', 0.1, true, NULL, NULL);
CREATE TABLE salaries (name text);
FLUSH PRIVILEGES;
CREATE USER gateway@'127.0.0.1' IDENTIFIED BY 'right-password';
GRANT SELECT ON shop.tenants TO gateway@'127.0.0.1';
"#;

/// A gateway with a route for each of `queries`, whose keys replace those of a usual `sql`.
async fn gateway(database: &Database, ca: &Ca, queries: &[(&str, Value)]) -> TestApp {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("password"), PASSWORD).unwrap();
    std::fs::write(folder.path().join("wrong"), "wrong-password").unwrap();
    std::fs::write(folder.path().join("ca.pem"), &ca.pem).unwrap();
    std::fs::write(folder.path().join("other.pem"), Ca::new("another").pem).unwrap();
    let routes: Vec<Value> = queries
        .iter()
        .map(|(name, keys)| {
            let mut sql =
                json!({"url": database.url("shop"), "user": USER, "password": {"file": "password"}, "ca": "ca.pem"});
            for (key, value) in keys.as_object().unwrap() {
                sql[key] = value.clone();
            }
            if sql["tls"] == "disabled" {
                sql.as_object_mut().unwrap().remove("ca");
            }
            json!({"name": name, "backend": {"sql": sql}, "nulls": "drop", "guard": {"onEmpty": "allow", "maxShrink": "100%"}})
        })
        .collect();
    TestApp::start_in(folder, &format!("{}routes: {}\n", TestApp::auth(), json!(routes))).await
}

fn sets(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["output"]["parameters"].clone()
}

/// Asks each of `routes`, which must fail with a code and a message that holds a text.
async fn fail(app: &TestApp, routes: &[(&str, &str, &str)]) {
    for (route, code, says) in routes {
        let began = Instant::now();
        let reply = app.ask(route, json!({})).await;
        assert_eq!(reply.code(), *code, "{route}: {}", reply.text());
        assert!(reply.message().contains(says), "{route}: {}", reply.text());
        assert!(!reply.text().contains("-password"), "{route}: {}", reply.text());
        assert!(began.elapsed() < Duration::from_secs(8), "{route}: {:?}", began.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_answers_and_fails() {
    let ca = Ca::new("the databases");
    let mut database = Database::start(Product::Postgres, POSTGRES, &ca).await;
    let named = |query: &str| json!({"query": query});
    let of_tenants = "select * from tenants where number = $1::int and name = $2";
    let app = gateway(
        &database,
        &ca,
        &[
            ("all", named("select number, name, size, active, made, tags, meta from tenants order by number -- all")),
            ("bound", json!({"query": of_tenants, "bind": ["{{ params.number }}", "{{ params.name }}"]})),
            ("cleartext", json!({"query": "select name from tenants", "tls": "disabled"})),
            ("many", json!({"query": "select name from tenants", "maxRows": 2})),
            ("endless", named("select 1 as n from generate_series(1, 40000), generate_series(1, 40000) a")),
            ("long", json!({"query": "select repeat('a', 1000000) as a from tenants", "maxBody": "1MiB"})),
            ("slow", json!({"query": "select pg_sleep(60)::text as a", "timeout": "1s"})),
            ("writes", named("with gone as (delete from tenants returning *) select * from gone")),
            ("two", named("select 1 as a) as x; drop table tenants; select (1")),
            ("absent", named("select * from nothing")),
            ("refused", named("select * from salaries")),
            ("wrong", json!({"query": "select 1 as a", "password": {"file": "wrong"}})),
            ("other-ca", json!({"query": "select 1 as a", "ca": "other.pem"})),
            (
                "other-name",
                json!({"query": "select 1 as a", "url": database.url("shop").replace("127.0.0.1", "localhost")}),
            ),
            ("elsewhere", json!({"query": "select 1 as a", "url": "postgres://127.0.0.1:1/shop"})),
            ("same", named("select 1 as a, 2 as a")),
        ],
    )
    .await;
    assert_eq!(
        sets(&app.ask("all", json!({})).await),
        json!([
            {"number": "1", "name": "Zürich", "size": "12.50", "active": true, "made": "2026-01-02T03:04:05", "tags": ["a", "b"], "meta": {"k": ["1"]}},
            {"number": "2", "name": "Bern", "size": "9007199254740993.00", "active": false, "tags": []},
            {"number": "3", "name": "Basel", "size": "0.10", "active": true},
        ])
    );
    let ask = |number: &str, name: &str| app.ask("bound", json!({"number": number, "name": name}));
    assert_eq!(sets(&ask("1", "Zürich").await)[0]["size"], "12.50");
    assert_eq!(sets(&ask("1", "'; drop table tenants; --").await), json!([]), "a value is never a part of the query");
    let reply = ask("one", "Bern").await;
    assert!(reply.message().contains("invalid input syntax for type integer"), "{}", reply.text());
    assert_eq!(sets(&app.ask("cleartext", json!({})).await).as_array().unwrap().len(), 3);
    fail(
        &app,
        &[
            ("many", "backend_output_invalid", "more than 2 rows; select fewer, or raise `maxRows`"),
            ("endless", "backend_output_invalid", "more than 10000 rows"),
            ("long", "backend_output_invalid", "more than 1048576 bytes"),
            ("slow", "backend_timeout", "no rows within its `timeout`"),
            ("writes", "backend_failed", "the database does not run the query"),
            ("two", "backend_failed", "cannot insert multiple commands"),
            ("absent", "backend_failed", "relation \"nothing\" does not exist"),
            ("refused", "backend_failed", "permission denied for table salaries"),
            ("wrong", "backend_failed", "password authentication failed for user \"gateway\""),
            ("other-ca", "backend_failed", "UnknownIssuer"),
            ("other-name", "backend_failed", "certificate"),
            ("elsewhere", "backend_failed", "cannot be reached"),
            ("same", "backend_output_invalid", "`a`"),
        ],
    )
    .await;
    // It is killed, and comes back.
    database.kill();
    let reply = app.ask_afresh("bound", json!({"number": "3", "name": "Basel"})).await;
    assert_eq!(reply.code(), "backend_failed", "{}", reply.text());
    database.restart().await;
    for _ in 0..100 {
        app.clock.advance(Duration::from_mins(2));
        let reply = ask("3", "Basel").await;
        if reply.status == 200 {
            assert_eq!(sets(&reply)[0]["name"], "Basel");
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
    panic!("it is not answered again");
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_answers_and_fails() {
    let ca = Ca::new("the databases");
    let mut database = Database::start(Product::MariaDb, MARIADB, &ca).await;
    let named = |query: &str| json!({"query": query});
    let of_tenants = "select name, size from tenants where number = ? and name = ?";
    let app = gateway(
        &database,
        &ca,
        &[
            ("all", named("select * from tenants order by number # all")),
            ("bound", json!({"query": of_tenants, "bind": ["{{ params.number }}", "{{ params.name }}"]})),
            ("cleartext", json!({"query": "select name from tenants", "tls": "disabled"})),
            ("many", json!({"query": "select name from tenants", "maxRows": 2})),
            ("endless", named("select 1 as n from tenants a, tenants b, tenants c, tenants d, tenants e, tenants f, tenants g, tenants h, tenants i, tenants j")),
            (
                "cut",
                named(
                    "with recursive n as (select 1 as a union all select a + 1 from n where a < 20000) select a from n",
                ),
            ),
            ("sloppy", named("select name from tenants where name = 0")),
            ("slow", json!({"query": "select sleep(60) as a from tenants", "timeout": "1s"})),
            ("writes", named("delete from tenants returning name")),
            ("two", named("select 1 as a) as x; drop table tenants; select (1")),
            ("absent", named("select * from nothing")),
            ("refused", named("select * from salaries")),
            ("wrong", json!({"query": "select 1 as a", "password": {"file": "wrong"}})),
            ("other-ca", json!({"query": "select 1 as a", "ca": "other.pem"})),
            ("elsewhere", json!({"query": "select 1 as a", "url": "mysql://127.0.0.1:1/shop"})),
            ("same", named("select 1 as a, 2 as a")),
        ],
    )
    .await;
    assert_eq!(
        sets(&app.ask("all", json!({})).await),
        json!([
            {"number": "1", "name": "Zürich", "size": "12.50", "active": "1", "made": "2026-01-02 03:04:05", "odd 'name\"": "x"},
            {"number": "2", "name": "Bern", "size": "9007199254740993.00", "active": "0"},
            {"number": "3", "name": "Basel", "size": "0.10", "active": "1"},
        ])
    );
    let ask = |number: &str, name: &str| app.ask("bound", json!({"number": number, "name": name}));
    assert_eq!(sets(&ask("1", "Zürich").await)[0]["size"], "12.50");
    assert_eq!(
        sets(&ask("1", "' or 1=1; drop table tenants; -- ").await),
        json!([]),
        "a value is never a part of the query"
    );
    assert_eq!(sets(&app.ask("cleartext", json!({})).await).as_array().unwrap().len(), 3);
    fail(
        &app,
        &[
            ("many", "backend_output_invalid", "more than 2 rows; select fewer, or raise `maxRows`"),
            ("endless", "backend_output_invalid", "more than 10000 rows"),
            ("cut", "backend_output_invalid", "max_recursive_iterations"),
            ("sloppy", "backend_output_invalid", "Truncated incorrect"),
            ("slow", "backend_timeout", "no rows within its `timeout`"),
            ("writes", "backend_failed", "the database does not run the query"),
            ("two", "backend_failed", "the database does not run the query"),
            ("absent", "backend_failed", "nothing"),
            ("refused", "backend_failed", "SELECT command denied"),
            ("wrong", "backend_failed", "Access denied for user 'gateway'"),
            ("other-ca", "backend_failed", "UnknownIssuer"),
            ("elsewhere", "backend_failed", "cannot be reached"),
            ("same", "backend_failed", "Duplicate column name 'a'"),
        ],
    )
    .await;
    database.kill();
    let reply = app.ask_afresh("bound", json!({"number": "3", "name": "Basel"})).await;
    assert_eq!(reply.code(), "backend_failed", "{}", reply.text());
}
