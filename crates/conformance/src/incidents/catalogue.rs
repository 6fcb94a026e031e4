//! All incidents, each with the pages that document it.

use super::{
    Act, Incident,
    edits::{empty, first_page, half},
};
use crate::upstream::{Fault, Reply};

const fn source(does: &'static str, reply: Reply) -> Act {
    Act::Source(Fault::new(does, reply))
}

const REQUEST: &str = "a request of the plugin during the incident";
const LIST: &str = "a JSON document with a list that is not empty";

const AWAY: Act = source("the source closes each connection", Reply::Close);
const HALF: Act = source("the source has half of its list", Reply::Edited(half));

/// All incidents, in the order of reports.
pub static ALL: &[Incident] = &[
    Incident {
        name: "half-a-list",
        happened: "On 2026-01-30 GKE's Fleet API answered with 6 of 12 bindings, and no error. 3 Applications were deleted, and were away for 2 to 12 \
                   minutes.",
        sources: &[
            "https://github.com/abridgeai/gke-fleet-management/commit/4e02c1b1da0b1021b0517b741379984bcd36f1b6",
            "https://github.com/GoogleCloudPlatform/gke-fleet-management/issues/113",
        ],
        needs: LIST,
        acts: &[HALF],
    },
    Incident {
        name: "empty-on-error",
        happened: "A failed list of clusters counted as no clusters, and all Applications were deleted. A published plugin does the same with its \
                   database: after any exception of psycopg2 it returns [].",
        sources: &[
            "https://github.com/argoproj/argo-cd/issues/18480",
            "https://github.com/abcxyzbank/argocd-plugin-generator-demo/blob/b5837a6aac23cc8e6e9b09b6120480c65555ade0/app/main.py",
        ],
        needs: REQUEST,
        acts: &[source(
            "the source answers 500",
            Reply::Bytes(
                "HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nContent-Length: 30\r\n\r\n\
                 {\"error\":\"connection refused\"}",
            ),
        )],
    },
    Incident {
        name: "source-away",
        happened: "Git was unavailable for a moment. Argo CD 2.11 went on after the error with an empty list, and uninstalled the Applications.",
        sources: &[
            "https://github.com/argoproj/argo-cd/issues/18212",
            "https://github.com/argoproj/argo-cd/pull/18781",
        ],
        needs: REQUEST,
        acts: &[AWAY],
    },
    Incident {
        name: "html-maintenance",
        happened: "While GitHub Enterprise was under maintenance, an answer was not JSON but began with `<`. Argo CD then generated 0 Applications and \
                   deleted all of them.",
        sources: &["https://github.com/argoproj/argo-cd/issues/14318"],
        needs: REQUEST,
        acts: &[source(
            "the source answers 200 with a page",
            Reply::Bytes(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 70\r\n\r\n\
                 <!DOCTYPE html><html><body><h1>Down for maintenance</h1></body></html>",
            ),
        )],
    },
    Incident {
        name: "list-cut-at-100",
        happened: "flux-operator takes 100 inputs unless `limit` is set, and Argo CD reads one page of Gitea. Neither reports an error for what it \
                   leaves out.",
        sources: &[
            "https://github.com/controlplaneio-fluxcd/flux-operator/blob/main/docs/api/v1/resourcesetinputprovider.md#filter",
            "https://github.com/argoproj/argo-cd/issues/29635",
        ],
        needs: "a JSON document with a list of more than 100 items, or of several pages",
        acts: &[source(
            "the source ends its list after the first 100 items or the first page",
            Reply::Edited(first_page),
        )],
    },
    Incident {
        name: "empty-204",
        happened: "PostgREST answered an empty list by a 204 without a body. For Argo CD a 204 is no parameter sets and no error.",
        sources: &[
            "https://github.com/PostgREST/postgrest/issues/70",
            "https://github.com/argoproj/argo-cd/blob/master/applicationset/services/internal/http/client.go",
        ],
        needs: REQUEST,
        acts: &[source("the source answers 204", Reply::Bytes("HTTP/1.1 204 No Content\r\n\r\n"))],
    },
    Incident {
        name: "token-expired-as-403-list",
        happened: "Gravitee answered an expired token by an empty list, and Gitea an invalid one by 200 and []. Other APIs answer 403.",
        sources: &[
            "https://github.com/gravitee-io/issues/issues/1351",
            "https://github.com/go-gitea/gitea/issues/21671",
        ],
        needs: LIST,
        acts: &[
            source(
                "the source answers 403",
                Reply::Bytes(
                    "HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nContent-Length: 27\r\n\r\n\
                     {\"message\":\"token expired\"}",
                ),
            ),
            source("the source answers 200 with an empty list", Reply::Edited(empty)),
        ],
    },
    Incident {
        name: "gateway-restart",
        happened: "When the pods of Argo CD's repo-server restarted, Applications were deleted although nothing in Git had changed. Here the plugin \
                   server is restarted while its source is away, and the source comes back with half of its list.",
        sources: &["https://github.com/argoproj/argo-cd/issues/22127"],
        needs: LIST,
        acts: &[AWAY, Act::Restart, HALF],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A wrong length would be another fault than the one that the incident names.
    #[test]
    fn replies_have_the_length_that_they_announce() {
        let mut count = 0;
        for fault in ALL.iter().flat_map(|incident| incident.acts) {
            let Act::Source(Fault { reply: Reply::Bytes(bytes), .. }) = fault else { continue };
            let (head, body) = bytes.split_once("\r\n\r\n").unwrap();
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            assert_eq!(length.map_or(0, |length| length.parse().unwrap()), body.len(), "{head}");
            count += 1;
        }
        assert_eq!(count, 4);
    }
}
