//! The objects of one cluster: finds their resource, reads their lists, and makes parameter sets of them.

use std::fmt::Write as _;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    discovery::{Discovery, Resource},
    list::{Listed, Listing},
    objects::Mapping,
    selection::{Selected, Selection},
};
use domain::{
    error::BackendError,
    generator::{Evidence, Outcome, Query},
    units::{HumanDuration, plural},
};
use outbound::kubernetes::ApiServer;

/// How many namespaces are read at a time.
const NAMESPACES_AT_ONCE: usize = 4;

/// Reads the objects of any cluster.
#[derive(Debug)]
pub(super) struct Reader {
    pub selection: Selection,
    pub mapping: Mapping,
    pub max_objects: usize,
    pub timeout: HumanDuration,
    pub discovery: Discovery,
}

impl Reader {
    /// The parameter sets of the objects at `server`, the server of `cluster`.
    ///
    /// # Errors
    /// When a list cannot be read whole.
    pub(super) async fn read(
        &self,
        server: &ApiServer,
        cluster: &Value,
        query: &Query,
    ) -> Result<Outcome, BackendError> {
        let deadline = query.deadline.min(Instant::now() + self.timeout.0);
        let selected = self.selection.of_query(query).await?;
        let resource = self.discovery.find(server, &self.selection.of, deadline).await?;
        if resource.is_namespaced == Some(false) && !selected.namespaces.is_empty() {
            let message =
                format!("objects of the kind `{}` are in no namespace; leave `namespaces` out", self.selection.of.kind);
            return Err(BackendError::invalid_output(message));
        }
        let lists = self.lists(server, &selected, &resource, deadline).await;
        let lists = lists.inspect_err(|_| self.discovery.forget(server))?;
        let count: usize = lists.iter().map(|list| list.items.len()).sum();
        if count > self.max_objects {
            let message = format!("there are more than {} objects (`maxObjects`) in all namespaces", self.max_objects);
            return Err(BackendError::invalid_output(message));
        }
        let evidence: Vec<Evidence> = lists.iter().map(|list| evidence(list, &selected)).collect();
        let objects = lists.into_iter().flat_map(|list| list.items).map(|object| self.named(object)).collect();
        let sets = self.mapping.sets(objects, cluster, query, deadline).await?;
        Ok(Outcome::of_sources(sets, evidence))
    }

    /// The list of each namespace, or the one of all.
    async fn lists(
        &self,
        server: &ApiServer,
        selected: &Selected,
        resource: &Resource,
        deadline: Instant,
    ) -> Result<Vec<Listed>, BackendError> {
        let all = [None];
        let some: Vec<Option<&str>> = selected.namespaces.iter().map(|name| Some(name.as_str())).collect();
        let namespaces = if some.is_empty() { &all[..] } else { &some[..] };
        let lists = namespaces.iter().map(|namespace| self.list(server, *namespace, selected, resource, deadline));
        let lists: Vec<_> = lists.collect();
        stream::iter(lists).buffered(NAMESPACES_AT_ONCE).try_collect().await
    }

    async fn list(
        &self,
        server: &ApiServer,
        namespace: Option<&str>,
        selected: &Selected,
        resource: &Resource,
        deadline: Instant,
    ) -> Result<Listed, BackendError> {
        let of = &self.selection.of;
        let mut path = of.path();
        path.extend(namespace.iter().flat_map(|namespace| ["namespaces", namespace]));
        path.push(&resource.name);
        let selectors = [("labelSelector", &selected.label_selector), ("fieldSelector", &selected.field_selector)];
        let query: Vec<(&str, &str)> =
            selectors.into_iter().filter_map(|(name, selector)| Some((name, selector.as_deref()?))).collect();
        let place = namespace.map_or_else(|| "all namespaces".to_owned(), |name| format!("the namespace `{name}`"));
        let right = format!("`list` {} in {place}", of.full_name(&resource.name));
        let listing = Listing {
            path: &path,
            query: &query,
            of: (&of.api_version, &of.kind),
            right: &right,
            max: self.max_objects,
            recorded_as: None,
            deadline,
        };
        listing.read(server).await
    }

    /// `object` with its `apiVersion` and `kind`, which the items of some lists lack.
    fn named(&self, mut object: Value) -> Value {
        if let Value::Object(fields) = &mut object {
            let of = &self.selection.of;
            for (key, value) in [("apiVersion", &of.api_version), ("kind", &of.kind)] {
                fields.entry(key).or_insert_with(|| Value::from(value.clone()));
            }
        }
        object
    }
}

fn evidence(list: &Listed, selected: &Selected) -> Evidence {
    let mut request = list.request.clone();
    let selectors = [("labels", &selected.label_selector), ("fields", &selected.field_selector)];
    for (name, selector) in selectors.into_iter().filter_map(|(name, selector)| Some((name, selector.as_ref()?))) {
        let _ = write!(request, ", {name} {selector}");
    }
    if list.pages > 1 {
        let _ = write!(request, ", {} pages", list.pages);
    }
    match list.items.len() {
        0 => Evidence::absent(request, "200, an explicit empty list"),
        count => Evidence::present(request, format!("200, {count} object{}", plural(count))),
    }
}
