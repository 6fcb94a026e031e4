//! Identities at clouds without a stored secret: the gateway's pod proves who it is, and gets short-lived credentials for registries and APIs.
//!
//! Start at [`build()`], which makes the [`outbound::Identities`] of a configuration; nothing else of the gateway depends on how an identity proves
//! itself. Each cloud is one module and one Cargo feature. `kept` keeps credentials until shortly before they end, gets each by one request for
//! all callers, and remembers failures for a while; `logins` keeps those at registries. `exchange` sends the requests, and puts the cloud's own code into errors.
//!
//! An identity never becomes a weaker one: which way it takes depends on the configuration and the pod's environment, not on what fails.

#![cfg_attr(
    not(any(feature = "aws", feature = "google", feature = "azure")),
    allow(
        dead_code,
        unused_imports,
        unused_variables,
        unused_mut,
        reason = "without a cloud, nothing uses what all share"
    )
)]

#[cfg(feature = "aws")]
mod aws;
#[cfg(feature = "azure")]
mod azure;
mod broken;
mod build;
mod context;
mod exchange;
#[cfg(feature = "google")]
mod google;
mod kept;
#[cfg(any(feature = "aws", feature = "azure"))]
mod logins;
#[cfg(any(feature = "google", feature = "azure"))]
mod oauth;
mod pod;

pub use self::{
    build::{IdentityConfig, Reach, build},
    pod::Pod,
};

#[cfg(all(test, feature = "aws", feature = "google", feature = "azure"))]
mod tests;
