//! What an identity lacks, by the code with which its cloud refuses.

use domain::error::{BackendError, ErrorKind};

/// Parts of a refusal, and what is missing then. The first row counts whose parts are all there.
const MISSING: &[(&[&str], &str)] = &[
    (
        &["ecr:GetAuthorizationToken", "AccessDenied"],
        "the role's policy must allow `ecr:GetAuthorizationToken` on `*`, besides reading the repositories",
    ),
    (
        &["ecr-public:GetAuthorizationToken", "AccessDenied"],
        "the role's policy must allow `ecr-public:GetAuthorizationToken` and `sts:GetServiceBearerToken` on `*`",
    ),
    (
        &["AssumeRoleWithWebIdentity of", "AccessDenied"],
        "the role must exist, and its trust policy must allow `sts:AssumeRoleWithWebIdentity` for the service account of this pod",
    ),
    (
        &["AssumeRoleWithWebIdentity of", "InvalidIdentityToken"],
        "IAM must have the cluster's OIDC provider, and the token's audience must be one of it, such as sts.amazonaws.com",
    ),
    (
        &["AssumeRole of", "AccessDenied"],
        "the role must exist, its trust policy must name the role before it (and the external id), and that one's policy must allow \
         `sts:AssumeRole`",
    ),
    (
        &["generateAccessToken", "PERMISSION_DENIED"],
        "the pod's own identity must have roles/iam.serviceAccountTokenCreator on that service account",
    ),
    (&["generateAccessToken", "NOT_FOUND"], "the service account must exist"),
    (
        &["Google's STS", "invalid_grant"],
        "the workload identity pool's provider must have the issuer and an audience of this pod's token, and its condition must be met",
    ),
    (
        &["Google's STS", "invalid_target"],
        "the workload identity pool and its provider must exist, and be enabled, by the name in the file's `audience`",
    ),
    (
        &["AADSTS70021"],
        "the application must have a federated credential with the issuer, the subject and the audience of this pod's token",
    ),
    (&["AADSTS700016"], "the application must exist in that tenant"),
    (&["the registry's token exchange", "UNAUTHORIZED"], "the identity must have the role AcrPull at the registry"),
];

/// `error`, and what is missing if it says so. `needs` is the permission that an identity needs at the registry.
pub(super) fn with_missing(error: &BackendError, needs: Option<&str>) -> String {
    let missing = missing(error).or(needs.filter(|_| is_of_registry(error)));
    let missing = missing.map(|missing| format!("; what is missing: {missing}"));
    format!("{error}{}", missing.unwrap_or_default())
}

/// Whether a registry or its token server refused what a login may read, and not the cloud the login.
fn is_of_registry(error: &BackendError) -> bool {
    error.kind == ErrorKind::Denied
        && error.message.contains("access denied (")
        && !error.message.contains("identity: ")
}

/// What is missing, if the cloud's refusal in `error` says so.
fn missing(error: &BackendError) -> Option<&'static str> {
    let text = error.to_string();
    let found = MISSING.iter().find(|(parts, _)| parts.iter().all(|part| text.contains(part)));
    found.map(|(_, what)| *what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_is_missing() {
        for (message, what) in [
            (
                "ecr:GetAuthorizationToken: 400: AccessDeniedException: User: arn:aws:x",
                "`ecr:GetAuthorizationToken` on `*`",
            ),
            ("ecr-public:GetAuthorizationToken: 400: AccessDeniedException", "sts:GetServiceBearerToken"),
            ("AssumeRoleWithWebIdentity of arn:aws:x: 403: AccessDenied: Not authorized", "trust policy must allow"),
            ("AssumeRoleWithWebIdentity of arn:aws:x: 400: InvalidIdentityToken: Incorrect token audience", "audience"),
            ("AssumeRole of arn:aws:x: 403: AccessDenied: User is not authorized", "external id"),
            ("generateAccessToken of a@b: 403: PERMISSION_DENIED: no", "serviceAccountTokenCreator"),
            (
                "Google's STS: POST https://sts.googleapis.com/v1/token: 400: invalid_grant: The audience in",
                "an audience of",
            ),
            ("Google's STS: POST https://sts.googleapis.com/v1/token: 400: invalid_target: The target", "be enabled"),
            ("Entra ID: 401: invalid_client: AADSTS700213: No matching", "federated credential"),
            ("Entra ID: 400: invalid_request: AADSTS70021: No matching federated identity", "federated credential"),
            ("the registry's token exchange: 401: UNAUTHORIZED: no", "AcrPull"),
            ("503: down", ""),
        ] {
            let found = missing(&BackendError::new(ErrorKind::Denied, message)).unwrap_or_default();
            assert!(found.contains(what) && found.is_empty() == what.is_empty(), "{message}: {found}");
        }
    }

    #[test]
    fn a_registry_that_refuses_says_what_the_identity_needs() {
        for (kind, message, is_shown) in [
            (ErrorKind::Denied, "registry r.example: GET https://r.example/v2/: access denied (403 Forbidden)", true),
            (ErrorKind::Denied, "registry r.example: token server: access denied (401 Unauthorized)", true),
            // The cloud refused the login: another permission is missing.
            (ErrorKind::Denied, "registry r.example: identity: STS: access denied (403 Forbidden)", false),
            (ErrorKind::Denied, "the name r.example is at 10.0.0.1, a private address", false),
            (ErrorKind::Unavailable, "access denied (403 Forbidden)", false),
        ] {
            let said = with_missing(&BackendError::new(kind, message), Some("the role AcrPull"));
            assert_eq!(said.ends_with("; what is missing: the role AcrPull"), is_shown, "{said}");
            assert!(!with_missing(&BackendError::new(kind, message), None).contains("missing"));
        }
    }
}
