//! The error codes, each with its status. No code has a 2xx.

use http::StatusCode;

/// The error codes of the contract (`openapi.yaml`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The request is not one that Argo CD's plugin generator sends.
    InvalidRequest,
    /// The token is missing, wrong, or not for this route.
    Forbidden,
    /// There is nothing at this path.
    NotFound,
    /// No route has this name, or no route's `match` accepts this call.
    UnknownRoute,
    /// The path is right, the method is not.
    MethodNotAllowed,
    /// The held answer is not the one that the decision names.
    Conflict,
    /// The body is larger than 1 MiB.
    PayloadTooLarge,
    /// The body of an event is compressed, or not JSON by its content type.
    UnsupportedMediaType,
    /// The input parameters are not those that the route or its backend needs.
    InvalidInput,
    /// The upstream or the gateway limits the rate.
    Throttled,
    /// The request's head is larger than the gateway reads.
    HeadTooLarge,
    /// A defect of the gateway.
    Internal,
    /// The backend cannot be reached, failed, or refused the gateway.
    BackendFailed,
    /// The backend's output is invalid.
    BackendOutputInvalid,
    /// Too many requests are under way.
    Overloaded,
    /// A service that the gateway itself needs does not answer: the one that authenticates the caller, or the shared store.
    Unavailable,
    /// The guard holds the answer, because it would delete too much.
    Held,
    /// The backend took too long.
    BackendTimeout,
}

impl Code {
    /// All codes.
    pub const ALL: [Self; 18] = [
        Self::InvalidRequest,
        Self::Forbidden,
        Self::NotFound,
        Self::UnknownRoute,
        Self::MethodNotAllowed,
        Self::Conflict,
        Self::PayloadTooLarge,
        Self::UnsupportedMediaType,
        Self::InvalidInput,
        Self::Throttled,
        Self::HeadTooLarge,
        Self::Internal,
        Self::BackendFailed,
        Self::BackendOutputInvalid,
        Self::Overloaded,
        Self::Unavailable,
        Self::Held,
        Self::BackendTimeout,
    ];

    /// The `code` of the body and of metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::UnknownRoute => "unknown_route",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::PayloadTooLarge => "payload_too_large",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::InvalidInput => "invalid_input",
            Self::Throttled => "throttled",
            Self::HeadTooLarge => "head_too_large",
            Self::Internal => "internal",
            Self::BackendFailed => "backend_failed",
            Self::BackendOutputInvalid => "backend_output_invalid",
            Self::Overloaded => "overloaded",
            Self::Unavailable => "unavailable",
            Self::Conflict => "conflict",
            Self::Held => "held",
            Self::BackendTimeout => "backend_timeout",
        }
    }

    /// The HTTP status of the code.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::InvalidRequest => StatusCode::BAD_REQUEST,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound | Self::UnknownRoute => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Conflict => StatusCode::CONFLICT,
            Self::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::InvalidInput => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Throttled => StatusCode::TOO_MANY_REQUESTS,
            Self::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::BackendFailed | Self::BackendOutputInvalid => StatusCode::BAD_GATEWAY,
            Self::Overloaded | Self::Unavailable | Self::Held => StatusCode::SERVICE_UNAVAILABLE,
            Self::BackendTimeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn no_code_is_a_success_or_a_redirect() {
        for code in Code::ALL {
            assert!(code.status().is_client_error() || code.status().is_server_error(), "{code:?}");
        }
    }
}
