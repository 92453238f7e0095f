//! Sessions over WebSocket, SSE and HTTP: a gateway on any engine.
