//! The story of `appset-gateway demo`: sources on good and bad days, and what Argo CD does with the answers about them.
//!
//! Three judges ([`judge`]) ask the same questions as Argo CD asks them, read the answers as it reads them, and keep a list of Applications each.
//! One asks a gateway. The other two ask plugins without a gateway ([`plugin`]) before the same sources ([`source`]): one catches its errors and
//! answers `[]`, the other answers an error with an error. [`scene`] is the list of scenes, and [`story`] plays them. All numbers of a
//! [`report`] are counted by the judges.
//!
//! Start at [`story::Story`]. The gateway itself is not part of this crate: the caller starts one with the configuration of [`story::Stage::config`],
//! and moves its clock.

mod config;
pub mod judge;
mod plugin;
pub mod report;
pub mod scene;
pub mod source;
pub mod story;
mod web;
