//! The gateway's configuration in the story.

use std::net::SocketAddr;

const TEMPLATE: &str = include_str!("gateway.yaml");

/// The configuration of a gateway before the sources at `source`. The hashes are those of the tokens of Argo CD and of operators.
pub(crate) fn gateway(source: SocketAddr, argocd: &str, operator: &str) -> String {
    let values =
        [("{SOURCE}", source.to_string()), ("{ARGOCD}", argocd.to_owned()), ("{OPERATOR}", operator.to_owned())];
    values.into_iter().fold(TEMPLATE.to_owned(), |text, (name, value)| text.replace(name, &value))
}
