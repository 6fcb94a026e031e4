//! Logins at registries, each kept by itself. A login may outlast the credential that it was issued for, and is then used without one.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::kept::{Issued, Kept};
use domain::{
    clock::Clock,
    error::{BackendError, ErrorKind},
};
use outbound::Login;

/// The logins of one identity.
pub(crate) struct Logins {
    clock: Arc<dyn Clock>,
    kept: Mutex<HashMap<String, Arc<Kept<Login>>>>,
}

impl Logins {
    /// Nothing is kept yet.
    pub(crate) fn new(clock: &Arc<dyn Clock>) -> Self {
        Self { clock: Arc::clone(clock), kept: Mutex::default() }
    }

    /// The login called `key`. Without one, `issue` gets it with the identity's `credential`. With `afresh`, the registry refused the current
    /// one. `credential` is renewed if a login is refused, since the session may have been revoked.
    ///
    /// # Errors
    /// Those of `credential` and `issue`, or a timeout at `deadline`.
    pub(crate) async fn get<C, D, W>(
        &self,
        key: String,
        (afresh, deadline): (bool, Instant),
        credential: impl Fn(bool, Instant) -> D + Clone + Send + 'static,
        issue: impl Fn(Arc<C>, Instant) -> W + Clone + Send + 'static,
    ) -> Result<Login, BackendError>
    where
        C: Send + Sync + 'static,
        D: Future<Output = Result<Arc<C>, BackendError>> + Send + 'static,
        W: Future<Output = Result<Issued<Login>, BackendError>> + Send + 'static,
    {
        let kept = {
            let mut all = self.kept.lock();
            Arc::clone(all.entry(key).or_insert_with(|| Arc::new(Kept::new(&self.clock))))
        };
        // Without a login, the credential comes from its own flight first: its failure must not be remembered for the login too.
        let first = if kept.is_good(afresh) { None } else { Some(credential(false, deadline).await?) };
        let work = |until| {
            let (credential, issue, first) = (credential.clone(), issue.clone(), first.clone());
            async move {
                let own = match first {
                    Some(own) => own,
                    None => credential(false, until).await?,
                };
                let issued = issue(own, until).await;
                if issued.as_ref().is_err_and(|error| error.kind == ErrorKind::Denied) {
                    drop(credential(true, until).await);
                }
                issued
            }
        };
        kept.get(afresh, deadline, work).await.map(|login| (*login).clone())
    }
}
