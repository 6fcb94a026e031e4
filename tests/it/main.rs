//! The integration tests: one binary, a file per topic. Every answer that a test gets through
//! [`support::TestApp`] is judged as Argo CD would read it.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

mod admin;
mod architecture;
mod audit;
mod builds;
mod cache;
mod cases;
mod cli;
mod clouds;
mod conformance;
mod crowds;
mod demo;
mod diff;
mod digests;
mod disk;
mod docs;
mod edge;
mod elements;
mod evaluations;
mod faults;
mod flux;
mod fuzz;
mod gallery;
mod gates;
mod getparams;
mod guard;
mod hooks;
mod hostile;
mod http;
mod init;
mod jwt;
mod kinds;
mod kubernetes;
mod lifecycle;
mod limits;
mod list;
mod merge;
mod metrics;
mod mistakes;
mod oci;
mod openapi;
mod outbound;
mod page;
mod pipeline;
mod plugins;
mod prefetch;
mod protocols;
mod reload;
mod replicas;
mod reviews;
mod rotation;
mod script;
mod secrets;
mod shadow;
mod shares;
mod site;
mod slug;
mod sql;
mod tls;
mod tokens;
mod traces;
mod workers;
