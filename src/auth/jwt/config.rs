//! What the configuration says of an issuer.

use std::path::PathBuf;

use jsonwebtoken::Algorithm;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use crate::{
    auth::{Role, grants::entry_config},
    domain::{secret::SecretRef, units::HumanDuration},
};

entry_config! {
    /// An issuer whose tokens (JWT) are taken, by exactly one of `jwks`, `publicKey` and `secret`.
    pub struct JwtConfig {
        /// What `iss` must be, to the letter.
        pub(crate) issuer: String,
        /// One of these must stand in `aud`.
        pub(crate) audience: Audience,
        /// With which algorithms a token may be signed. What a token says of itself picks one of these, and never another.
        #[schemars(schema_with = "algorithms")]
        pub(crate) algorithms: Vec<Algorithm>,
        /// The issuer's set of public keys.
        pub(crate) jwks: Option<JwksConfig>,
        /// A PEM file with one public key, RSA, EC or Ed25519; read again when it may have changed.
        pub(crate) public_key: Option<PathBuf>,
        /// What issuer and gateway both know, for HS256 and its kind: at least 32 bytes of it (RFC 7518, section 3.2).
        pub(crate) secret: Option<SecretRef>,
        /// What the caller is called: CEL over `claims`.
        #[serde(default = "subject")]
        pub name: String,
        /// What its tokens are for.
        #[serde(default)]
        pub(crate) role: Role,
        /// Both of these by token: CEL over `claims` that gives `{'routes': [globs], 'applicationSets': [globs]}`. Without `applicationSets`
        /// in it, all of them.
        pub scopes: Option<String>,
    }
}

/// Where an issuer's public keys are (RFC 7517): exactly one of `url`, `file` and `discovery`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct JwksConfig {
    /// Where they are, by https; by http on this machine only.
    pub(crate) url: Option<String>,
    /// A file with them; read again when it may have changed.
    pub(crate) file: Option<PathBuf>,
    /// Whether the issuer says itself where they are, at `<issuer>/.well-known/openid-configuration`.
    #[serde(default)]
    pub(crate) discovery: bool,
    /// How often they are asked for. A key that the issuer has dropped is taken for so long; a new one is asked for when it is first seen.
    #[serde(default = "refresh")]
    pub(crate) refresh: HumanDuration,
    /// A PEM file with certificates that are trusted there besides the system's.
    pub(crate) ca: Option<PathBuf>,
    /// A token for whoever has them, where not everybody may read them; read at each use.
    pub(crate) token: Option<SecretRef>,
}

/// One audience or several.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "text, or a list of texts")]
pub(crate) enum Audience {
    /// The only one.
    One(String),
    /// Any of these.
    Any(Vec<String>),
}

impl Audience {
    /// All of them.
    #[must_use]
    pub(crate) fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(audience) => vec![audience],
            Self::Any(audiences) => audiences,
        }
    }
}

fn subject() -> String {
    "claims.sub".to_owned()
}

const fn refresh() -> HumanDuration {
    HumanDuration::from_secs(5 * 60)
}

fn algorithms(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "items": {
            "type": "string",
            "enum": [
                "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA", "HS256", "HS384", "HS512"
            ]
        }
    })
}
