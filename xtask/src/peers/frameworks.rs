//! The agent frameworks and SDKs that benches and probes compare with.

use super::{Kind, Peer, Probe, UseIn};

pub(super) static FRAMEWORKS: &[Peer] = &[
    Peer {
        name: "langgraph",
        about: "LangGraph with its checkpoints in SQLite and PostgreSQL, and LangChain's client of OpenAI",
        kind: Kind::Python(&[
            "langgraph==1.2.20",
            "langgraph-checkpoint-sqlite==3.1.2",
            "langgraph-checkpoint-postgres==3.2.0",
            "psycopg[binary]==3.3.9",
            "langchain-openai==1.7.3",
        ]),
        use_in: UseIn::Benches,
        probe: Probe {
            program: "bin/python",
            args: &[
                "-c",
                "import langgraph.graph, langgraph.checkpoint.sqlite; \
                 from importlib.metadata import version; print('langgraph', version('langgraph'))",
            ],
            stdin: "",
            prints: "langgraph 1.2.20",
        },
    },
    Peer {
        name: "openai-agents",
        about: "OpenAI's agents library",
        kind: Kind::Python(&["openai-agents==0.24.0"]),
        use_in: UseIn::Benches,
        probe: Probe {
            program: "bin/python",
            args: &[
                "-c",
                "import agents; from importlib.metadata import version; \
                 print('openai-agents', version('openai-agents'), agents.Runner.__name__)",
            ],
            stdin: "",
            prints: "openai-agents 0.24.0 Runner",
        },
    },
    Peer {
        name: "openai-sdk",
        about: "OpenAI's client library, as it is without a framework",
        kind: Kind::Python(&["openai==3.49.0"]),
        use_in: UseIn::Recovery,
        probe: Probe {
            program: "bin/python",
            args: &["-c", "import openai; print('openai', openai.__version__)"],
            stdin: "",
            prints: "openai 3.49.0",
        },
    },
    Peer {
        name: "pydantic-ai",
        about: "Pydantic AI, of its providers OpenAI alone, and DBOS to keep its runs",
        kind: Kind::Python(&[
            "pydantic-ai-slim==2.66.0",
            "openai==3.49.0",
            "tiktoken==0.14.0",
            "dbos==3.3.0",
        ]),
        use_in: UseIn::Benches,
        probe: Probe {
            program: "bin/python",
            args: &[
                "-c",
                "import pydantic_ai.models.function; from importlib.metadata import version; \
                 print('pydantic-ai', version('pydantic-ai-slim'))",
            ],
            stdin: "",
            prints: "pydantic-ai 2.66.0",
        },
    },
    Peer {
        name: "agno",
        about: "agno with its databases in memory and in SQLite",
        kind: Kind::Python(&["agno==3.1.10", "openai==3.49.0", "sqlalchemy[asyncio]==2.1.8"]),
        use_in: UseIn::Benches,
        probe: Probe {
            program: "bin/python",
            args: &[
                "-c",
                "import agno.agent, agno.db.in_memory, agno.db.sqlite; \
                 from importlib.metadata import version; print('agno', version('agno'))",
            ],
            stdin: "",
            prints: "agno 3.1.10",
        },
    },
    Peer {
        name: "rig",
        about: "the most used agent framework in Rust, to measure against",
        kind: Kind::Cargo,
        use_in: UseIn::Benches,
        probe: Probe {
            program: "target/release/rig",
            args: &["--version"],
            stdin: "",
            prints: "rig 0.44.0",
        },
    },
    Peer {
        name: "autoagents",
        about: "another agent framework in Rust, to measure against",
        kind: Kind::Cargo,
        use_in: UseIn::Benches,
        probe: Probe {
            program: "target/release/autoagents",
            args: &["--version"],
            stdin: "",
            prints: "autoagents 0.4.0",
        },
    },
];
