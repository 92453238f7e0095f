//! The Claude CLI as an engine: one child process per session, JSON lines both ways, turns told apart.
