//! Model providers: Anthropic, OpenAI-compatible, scripted, demo.
