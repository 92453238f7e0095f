//! The editor bridge: an ACP agent on stdio over any engine.
