//! Config management plugins: the server that turns a repository into manifests, in the place of `argocd-cmp-server`.
//!
//! Begin at [`cli::run`]. A call comes in at `transport`, which makes grpc-go's requests acceptable for hyper; `grpc` reads its messages; `service`
//! picks the method; `served` answers it for one plugin: `archive` reads what Argo CD sends, `trees` keeps it, `run` starts the plugin's commands,
//! `guard` holds results that lost resources. `network` is the way in for other machines, by TLS, and `exchange` what a
//! relay and a service say to each other there. `relay` is the other program: sockets here, plugins on other machines. `server` starts all of it, `discover` decides by
//! names of files, `queue` orders runs by their deadlines, `askpass` answers git in a run, `kept` keeps folders of failed runs, `traces` sends spans, `output` reads manifests,
//! `author` is `check` and `render`, `health` says whether the server serves. What must hold is in docs/cmp/README.md. It is the program `cmp-gateway`; nothing else uses it, but for `probe`,
//! which is for the fuzz targets.

mod admin;
mod archive;
mod askpass;
mod author;
pub mod cli;
mod config;
mod discover;
mod exchange;
mod grpc;
mod guard;
mod health;
mod kept;
mod metrics;
mod network;
mod output;
mod plugin;
pub mod probe;
mod queue;
mod reflection;
mod relay;
mod run;
mod served;
mod server;
mod service;
mod traces;
mod transport;
mod trees;
