//! Forgeries of signatures by key, by what is forged.

mod algorithms;
mod bundles;
mod envelopes;
mod legacy;
mod statements;
