//! Performs what the turn decides: model calls, tool calls, retries, permissions, resume.
