//! The requests whose records may have long fields: what is in chunks is read and sent by its chunks.

use std::collections::HashMap;

use bytes::Bytes;
use chunks::ChunkId;
use redis::Value;

use super::{
    super::{
        ANSWERING, Commit, CopyState, Field, LIVE, MAX_RECOVERY, MIN_RECOVERY, OFFERING, Page, Record, RecordKey,
        StoreError, SyncReply, SyncRequest, Write,
    },
    RedisStore,
    long::{Argument, Wanted},
    millis, reply,
};

impl RedisStore {
    /// What the server replies to `request`. Its long fields are in chunks.
    pub(super) async fn sync_once(&self, request: &SyncRequest) -> Result<SyncReply, StoreError> {
        let copy = match request.copy {
            CopyState::Empty => 0,
            CopyState::Partial => 1,
            CopyState::Complete => 2,
            CopyState::Alone => 3,
            CopyState::Filed => 4,
        };
        let reply: Value = self
            .run(&self.scripts.sync, self.bulk(), |script| {
                script
                    .arg(request.epoch.as_deref().unwrap_or_default())
                    .arg(&request.replica)
                    .arg(request.version)
                    .arg(request.invalidation)
                    .arg(request.highest)
                    .arg(copy)
                    .arg(u8::from(request.has_offered))
                    .arg(millis(LIVE))
                    .arg(millis(MIN_RECOVERY))
                    .arg(millis(MAX_RECOVERY))
                    .arg(u8::from(request.is_serving))
                    .arg(millis(ANSWERING))
                    .arg(u8::from(request.is_current))
                    .arg(millis(OFFERING))
                    .arg(u8::from(request.suspects))
                    .arg(request.live_then);
            })
            .await?;
        reply::sync(reply).ok_or_else(|| StoreError::Unavailable("its answer to `sync` cannot be read".to_owned()))
    }

    /// The records after the version `after`. Their long fields are in chunks.
    pub(super) async fn page_once(&self, epoch: &str, after: u64) -> Result<Page, StoreError> {
        let reply: Value = self
            .run(&self.scripts.page, self.bulk(), |script| {
                script.arg(epoch).arg(after);
            })
            .await?;
        reply::page(reply).ok_or_else(|| StoreError::Unavailable("its answer to `page` cannot be read".to_owned()))
    }

    /// Makes the long fields of `records` whole. Returns whether none is unreadable, as one is whose chunks another commit replaced since `records`
    /// were read.
    pub(super) async fn complete(&self, epoch: &str, records: &mut [(RecordKey, Record)]) -> Result<bool, StoreError> {
        let wanted = self.long.wanted(records);
        let found = self.chunks(epoch, &wanted).await?;
        Ok(self.long.complete(records, wanted, found))
    }

    /// Reads the chunks that the `wanted` fields miss, as far as they are there.
    async fn chunks(
        &self,
        epoch: &str,
        wanted: &[Wanted],
    ) -> Result<HashMap<(RecordKey, Field), HashMap<ChunkId, Bytes>>, StoreError> {
        let wanted: Vec<&Wanted> = wanted.iter().filter(|wanted| !wanted.missing.is_empty()).collect();
        if wanted.is_empty() {
            return Ok(HashMap::new());
        }
        let lists: Vec<Vec<Vec<u8>>> = self
            .run(&self.scripts.chunks, self.bulk(), |script| {
                script.arg(epoch);
                for Wanted { place: (key, field), missing, .. } in &wanted {
                    script.arg(&key[..]).arg(*field as usize).arg(missing.len());
                    for id in missing {
                        script.arg(&id.as_bytes()[..]);
                    }
                }
            })
            .await?;
        let by_id = |(wanted, list): (&Wanted, Vec<Vec<u8>>)| {
            let chunks = wanted.missing.iter().copied().zip(list.into_iter().map(Bytes::from));
            (wanted.place, chunks.filter(|(_, chunk)| !chunk.is_empty()).collect())
        };
        Ok(wanted.into_iter().zip(lists).map(by_id).collect())
    }

    /// The fields of `commit` for the script, with `all` chunks or those that the server may lack.
    pub(super) fn arguments(&self, commit: &Commit, all: bool) -> Vec<Argument> {
        let argument = |write: &Write| self.long.argument((write.key, write.field), write.content.as_ref(), all);
        commit.writes.iter().map(argument).collect()
    }

    /// Runs the script for `commit`, whose fields are `arguments`: the version, 0 for a conflict, -1 if chunks are missing.
    pub(super) async fn commit_once(
        &self,
        epoch: &str,
        commit: &Commit,
        arguments: &[Argument],
    ) -> Result<i64, StoreError> {
        self.run(&self.scripts.commit, self.timeout, |script| {
            let (replica, question) =
                commit.lease.as_ref().map_or(("", &[][..]), |(replica, question)| (replica, &question[..]));
            script.arg(epoch).arg(commit.invalidation).arg(replica).arg(question).arg(commit.expected.len());
            for (key, version) in &commit.expected {
                script.arg(&key[..]).arg(version);
            }
            script.arg(commit.writes.len());
            for (write, argument) in commit.writes.iter().zip(arguments) {
                script.arg(&write.key[..]).arg(write.field as usize);
                argument.fill(script);
            }
        })
        .await
    }
}
