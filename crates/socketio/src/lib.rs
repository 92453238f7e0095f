//! A Socket.IO client session on the published packet codec: acks both ways, reconnect, a bounded queue.
