//! What the failure of a stream of HTTP/2 before its response says about the request and about the connection, which
//! other requests share (RFC 9113 sections 7 and 8.7).

use h2::Reason;

/// Failure of a stream before its response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamFailure {
    /// The origin reset the stream.
    Reset(Reason),
    /// The stream is above the last one of the origin's GOAWAY.
    AboveGoAway,
    /// The connection failed.
    Connection,
    /// The gateway reset the stream because of what the origin sent.
    Response,
}

/// Whether the origin has processed a request without a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Processing {
    /// Certainly not.
    None,
    /// Hardly: Node refuses the streams of a connection that buffers too much before the application sees them, but HTTP/2
    /// does not promise it.
    Unlikely,
    Possible,
}

impl StreamFailure {
    /// Returns the kind of `error`; that of an error without a cause in HTTP/2 is a failure of the connection.
    pub(super) fn new(error: Option<&h2::Error>) -> Self {
        match error {
            Some(error) if error.is_go_away() && error.is_remote() => Self::AboveGoAway,
            Some(error) if error.is_reset() => match error.reason() {
                Some(reason) if error.is_remote() => Self::Reset(reason),
                _ => Self::Response,
            },
            _ => Self::Connection,
        }
    }

    pub(super) fn processing(self) -> Processing {
        match self {
            Self::AboveGoAway | Self::Reset(Reason::REFUSED_STREAM) => Processing::None,
            Self::Reset(Reason::ENHANCE_YOUR_CALM) => Processing::Unlikely,
            Self::Reset(_) | Self::Connection | Self::Response => Processing::Possible,
        }
    }

    /// Returns true if other requests would probably fail on the connection, too.
    pub(super) fn concerns_connection(self) -> bool {
        match self {
            Self::Reset(reason) => !matches!(
                reason,
                Reason::NO_ERROR
                    | Reason::PROTOCOL_ERROR
                    | Reason::STREAM_CLOSED
                    | Reason::CANCEL
                    | Reason::CONNECT_ERROR
                    | Reason::HTTP_1_1_REQUIRED
            ),
            Self::AboveGoAway | Self::Connection => true,
            Self::Response => false,
        }
    }
}

/// Returns true if the reset of a stream within its response means that the origin refuses the connection. Other reasons
/// concern the response: an application that fails resets its stream with INTERNAL_ERROR.
pub(super) fn refuses_connection(error: Option<&h2::Error>) -> bool {
    StreamFailure::new(error) == StreamFailure::Reset(Reason::ENHANCE_YOUR_CALM)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All error codes of RFC 9113 section 7, and an undefined one.
    #[test]
    fn each_error_code_has_its_meaning_for_the_request_and_for_the_connection() {
        use Processing::{None, Possible, Unlikely};
        for (reason, processing, concerns_connection) in [
            (Reason::NO_ERROR, Possible, false),
            (Reason::PROTOCOL_ERROR, Possible, false),
            (Reason::INTERNAL_ERROR, Possible, true),
            (Reason::FLOW_CONTROL_ERROR, Possible, true),
            (Reason::SETTINGS_TIMEOUT, Possible, true),
            (Reason::STREAM_CLOSED, Possible, false),
            (Reason::FRAME_SIZE_ERROR, Possible, true),
            (Reason::REFUSED_STREAM, None, true),
            (Reason::CANCEL, Possible, false),
            (Reason::COMPRESSION_ERROR, Possible, true),
            (Reason::CONNECT_ERROR, Possible, false),
            (Reason::ENHANCE_YOUR_CALM, Unlikely, true),
            (Reason::INADEQUATE_SECURITY, Possible, true),
            (Reason::HTTP_1_1_REQUIRED, Possible, false),
            (Reason::from(0x99), Possible, true),
        ] {
            let failure = StreamFailure::Reset(reason);
            assert_eq!(
                (failure.processing(), failure.concerns_connection()),
                (processing, concerns_connection),
                "{reason}"
            );
        }
        for (failure, processing, concerns_connection) in [
            (StreamFailure::AboveGoAway, None, true),
            (StreamFailure::Connection, Possible, true),
            (StreamFailure::Response, Possible, false),
        ] {
            assert_eq!((failure.processing(), failure.concerns_connection()), (processing, concerns_connection));
        }
    }

    /// What the gateway itself finds wrong is no statement of the origin about the request.
    #[test]
    fn only_the_origin_says_that_it_has_not_processed_a_request() {
        for reason in [Reason::REFUSED_STREAM, Reason::ENHANCE_YOUR_CALM] {
            let own = h2::Error::from(reason);
            assert_eq!(StreamFailure::new(Some(&own)).processing(), Processing::Possible, "{reason}");
            assert!(!refuses_connection(Some(&own)), "{reason}");
        }
        assert_eq!(StreamFailure::new(Option::None), StreamFailure::Connection);
    }
}
