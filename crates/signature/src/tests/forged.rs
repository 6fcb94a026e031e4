//! Forgeries of signatures by key, by the forged part.

mod algorithms;
mod bundles;
mod envelopes;
mod legacy;
mod statements;
