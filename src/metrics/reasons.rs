//! Why a connection was refused or closed, and what requests wait for: label values, and the words of log lines.

/// One macro arm per reason keeps the index, the label and the text together.
macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $label:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        pub enum $name {
            $($(#[$vdoc])* $variant,)*
        }

        impl $name {
            /// Every reason, in the order of [`Self::index`].
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
            /// Number of reasons.
            pub const COUNT: usize = Self::ALL.len();

            /// Position in arrays of [`Self::COUNT`] elements.
            #[must_use]
            pub fn index(self) -> usize {
                self as usize
            }

            /// Label value in metrics.
            #[must_use]
            pub fn label(self) -> &'static str {
                match self {
                    $($name::$variant => $label,)*
                }
            }
        }
    };
}

reasons! {
    /// Why an accepted socket was closed before it was served.
    RefuseReason {
        /// `max.connections.per.ip` reached.
        PerIpLimit = "max_connections_per_ip",
        /// The broker is stopping.
        Stopping = "stopping",
    }
}

reasons! {
    /// Why a served connection was closed.
    CloseReason {
        /// The client closed its side.
        ClientClosed = "client_closed",
        /// No request for `connections.max.idle.ms`.
        Idle = "idle",
        /// A request frame came in too slowly.
        SlowFrame = "slow_frame",
        /// The client did not take its responses.
        SlowReader = "slow_reader",
        /// A size prefix outside the limits, or not Kafka's protocol at all.
        BadFrame = "bad_frame",
        /// A frame that does not decode, or a version that the broker does not speak.
        BadRequest = "bad_request",
        /// A request that this state of the connection does not allow.
        IllegalState = "illegal_state",
        /// The socket failed.
        SocketError = "socket_error",
        /// The log could not be read after the response header had left.
        StorageError = "storage_error",
        /// A failure inside the broker (a core that is gone, for example).
        Internal = "internal",
        /// The broker is stopping.
        Stopping = "stopping",
    }
}

reasons! {
    /// What the time of a request goes into, in the order in which it meets them.
    Cause {
        /// From the first to the last byte of its frame, where these did not come together.
        Receive = "receive",
        /// Not taken on: for memory of the core, or because its connection has too much in flight.
        Throttle = "throttle",
        /// From its last byte to the work at the owner of its partition: decoding and checks, the turns of others, the
        /// way to another core.
        Queue = "queue",
        /// From there to the end of the write of its records, their wait for the write before included.
        Append = "append",
        /// From the end of the write to that of the flush that the acknowledgement waits for.
        FlushWait = "flush_wait",
        /// Reading from the disk what is to be sent: indexes, headers, pages that were not in memory.
        ColdRead = "cold_read",
        /// Its answer was ready, and earlier ones of its connection were not.
        Order = "order",
        /// Its answer was being sent, and the socket took no more: the client or the network is slow.
        SocketStall = "socket_stall",
    }
}

#[cfg(test)]
mod tests {
    use super::{Cause, CloseReason, RefuseReason};

    #[test]
    fn indexes_match_positions() {
        for (i, reason) in CloseReason::ALL.iter().enumerate() {
            assert_eq!(reason.index(), i);
        }
        for (i, reason) in RefuseReason::ALL.iter().enumerate() {
            assert_eq!(reason.index(), i);
        }
        for (i, cause) in Cause::ALL.iter().enumerate() {
            assert_eq!(cause.index(), i);
        }
    }
}
