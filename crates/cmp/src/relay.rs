//! `cmp-gateway relay`: remote plugins, as sockets for Argo CD.
//!
//! `server` makes the sockets of `config`, which may change. A call comes to a `slot`, whose `remote` answers it (`calls`): it decides by
//! names, or spools the archive (`spool`) and asks one of the `replicas` (`asking`), each by a `link`. `names` resolves addresses, `upload` sends archives, `answers` reads what comes back, `credentials` answers git,
//! `metrics` counts, and `status` shows. The decision is docs/decisions/0041-cmp-relay.md.

mod answers;
mod asking;
mod calls;
mod config;
mod credentials;
mod failure;
mod link;
mod metrics;
mod names;
mod remote;
mod replicas;
mod server;
mod slot;
mod spool;
pub(crate) mod status;
mod upload;

pub(crate) use self::{config::RelayConfig, server::serve};
