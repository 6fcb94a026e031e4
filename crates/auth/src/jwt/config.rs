//! The configuration of an issuer.

use std::path::PathBuf;

use jsonwebtoken::Algorithm;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use crate::{Role, grants::entry_config};
use domain::{secret::SecretRef, units::HumanDuration};

entry_config! {
    /// An issuer whose tokens (JWT) are accepted. It needs exactly one of `jwks`, `publicKey` and `secret`.
    pub struct JwtConfig {
        /// The exact value of `iss`.
        pub issuer: String,
        /// The accepted audiences: `aud` must have one of them.
        pub audience: Audience,
        /// The algorithms with which tokens may be signed. A token's header can choose only among these.
        #[schemars(schema_with = "algorithms")]
        pub algorithms: Vec<Algorithm>,
        /// The issuer's set of public keys.
        pub jwks: Option<JwksConfig>,
        /// A PEM file with one public key, RSA, EC or Ed25519; read again when it may have changed.
        pub public_key: Option<PathBuf>,
        /// The secret that issuer and gateway share, for HS256, HS384 and HS512: at least 32 bytes (RFC 7518, section 3.2).
        pub secret: Option<SecretRef>,
        /// The caller's name: CEL over `claims`.
        #[serde(default = "subject")]
        pub name: String,
        /// The role of its callers.
        #[serde(default)]
        pub role: Role,
        /// Both of these by token: CEL over `claims` that gives `{'routes': [globs], 'applicationSets': [globs]}`. Without `applicationSets`
        /// in it, all of them.
        pub scopes: Option<String>,
    }
}

/// Where an issuer's public keys are (RFC 7517): exactly one of `url`, `file` and `discovery`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JwksConfig {
    /// The URL of the keys: https, or http on this machine only.
    pub url: Option<String>,
    /// A file with the keys; read again when it may have changed.
    pub file: Option<PathBuf>,
    /// Whether to find the keys' URL at `<issuer>/.well-known/openid-configuration`.
    #[serde(default)]
    pub discovery: bool,
    /// How often the keys are fetched. A key that the issuer has withdrawn is accepted for so long. A new key is fetched when a token names it.
    #[serde(default = "refresh")]
    pub refresh: HumanDuration,
    /// A PEM file with certificates that are trusted there in addition to the system's.
    pub ca: Option<PathBuf>,
    /// A token for the keys' server, if it needs one; read at each use.
    pub token: Option<SecretRef>,
}

/// One audience or several.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "text, or a list of texts")]
pub enum Audience {
    /// The only one.
    One(String),
    /// Any of these.
    Any(Vec<String>),
}

impl Audience {
    /// All of them.
    #[must_use]
    pub fn into_vec(self) -> Vec<String> {
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
