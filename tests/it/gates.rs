//! CI gates, each against a forge that answers as its documentation shows, and against one that does not.

mod bitbucket;
mod forge;
mod gitea;
mod gitlab;
