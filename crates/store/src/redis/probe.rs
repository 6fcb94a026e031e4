//! Tries a store once, for `check --connect`: whether it can be reached, keeps written values, and lets this user do what the
//! gateway needs.

use std::collections::HashMap;

use redis::Script;

use super::{RedisStore, store_error};
use crate::StoreError;

/// A store's report about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreProbe {
    /// Its name and version.
    pub server: String,
    /// How it keeps its content.
    pub persistence: String,
    /// A problem, and its correction.
    pub problems: Vec<String>,
}

impl RedisStore {
    /// Connects, reads the server's report about itself, and uses one key as the gateway's scripts do.
    ///
    /// # Errors
    /// When there is no connection, or `INFO` is not allowed.
    pub async fn probe(&self) -> Result<StoreProbe, StoreError> {
        let mut connection = self.connector.connect().await?;
        // A script's INFO is answered by the node that holds the keys.
        let script = Script::new("return redis.call('INFO', 'everything')");
        let mut invocation = script.prepare_invoke();
        invocation.key(&self.state);
        let info: String = connection.invoke(&invocation).await.map_err(|error| {
            let prefix = self.state.trim_end_matches("meta");
            let hint = format!(
                "the gateway needs EVALSHA, SCRIPT LOAD, EVAL and INFO, and the keys that begin with `{prefix}`; \
                 docs/replicas.md lists all commands"
            );
            StoreError::Unavailable(format!("{}; {hint}", store_error("INFO in a script", &error)))
        })?;
        let mut probe = read(&info);
        let try_all = Script::new(include_str!("probe.lua"));
        let mut invocation = try_all.prepare_invoke();
        invocation.key(format!("{}probe", self.state));
        if let Err(error) = connection.invoke::<String>(&invocation).await {
            probe.problems.push(format!(
                "this user may not do what the gateway needs: {error}; docs/replicas.md lists the commands and keys"
            ));
        }
        Ok(probe)
    }
}

/// Reads the answer to `INFO`.
fn read(info: &str) -> StoreProbe {
    let all: HashMap<&str, &str> = info.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
    let get = |name: &str| all.get(name).copied().unwrap_or_default();
    let server = match (get("valkey_version"), get("redis_version")) {
        ("", "") => "an unknown server".to_owned(),
        ("", version) => format!("Redis {version}"),
        (version, _) => format!("Valkey {version}"),
    };
    let mut problems = Vec::new();
    let mut parts = get("redis_version").split('.').map(|part| part.parse::<u32>().ok());
    let version = (parts.next().flatten(), parts.next().flatten());
    if version.0.is_some() && version < (Some(6), Some(2)) {
        problems.push(format!("{server} is too old; use Valkey, or Redis 6.2 or later"));
    }
    let has_file = get("aof_enabled") == "1";
    let persistence = if has_file { "append-only file" } else { "snapshots at most" };
    if !has_file {
        problems.push("`appendonly` is off: a restart of the store loses what came after its last snapshot".to_owned());
    } else if get("aof_last_write_status") == "err" {
        problems.push("the last write of its append-only file failed; look at its disk".to_owned());
    }
    match get("maxmemory_policy") {
        "noeviction" | "" => {}
        policy => problems.push(format!(
            "`maxmemory-policy` is `{policy}`: a full store forgets answers, and the guard then holds what follows; set `noeviction`"
        )),
    }
    if get("role") == "slave" {
        problems.push("it is a read-only standby; name the primary, or its Sentinels".to_owned());
    }
    if get("loading") == "1" {
        problems.push("it is still reading its file".to_owned());
    }
    StoreProbe { server, persistence: persistence.to_owned(), problems }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# Server\r\nredis_version:7.2.4\r\nvalkey_version:8.1.4\r\nrole:master\r\nloading:0\r\naof_enabled:1\r\n\
                        aof_last_write_status:ok\r\nmaxmemory_policy:noeviction\r\n";

    #[test]
    fn a_good_store_has_no_problems() {
        let probe = read(GOOD);
        assert_eq!(
            (&*probe.server, &*probe.persistence, probe.problems.len()),
            ("Valkey 8.1.4", "append-only file", 0)
        );
    }

    #[test]
    fn each_weakness_is_a_problem() {
        for (from, to, expected) in [
            ("aof_enabled:1", "aof_enabled:0", "`appendonly` is off"),
            ("write_status:ok", "write_status:err", "look at its disk"),
            ("policy:noeviction", "policy:allkeys-lru", "`maxmemory-policy` is `allkeys-lru`"),
            ("role:master", "role:slave", "read-only standby"),
            ("loading:0", "loading:1", "still reading"),
            ("redis_version:7.2.4", "redis_version:6.0.16", "too old"),
        ] {
            let probe = read(&GOOD.replace(from, to));
            assert!(probe.problems.len() == 1 && probe.problems[0].contains(expected), "{:?}", probe.problems);
        }
    }
}
