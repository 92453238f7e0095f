//! Sessions over WebSocket, SSE and HTTP: a gateway on any engine.

pub mod frame;
pub mod inbound;
pub mod project;
pub mod words;
