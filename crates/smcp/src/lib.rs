//! A2C-SMCP: agents call tools on remote computers through a hub. Wire types, server, computer, agent.
