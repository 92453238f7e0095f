//! Server-side requests: nothing that a model, a tool, a document or a peer writes makes this process connect anywhere.
//!
//! Where we do connect (model services, MCP servers, hubs, webhooks) the address comes from whoever configures us, and no
//! redirect is followed to another origin; those have tests of their own. Here the others write addresses.

use std::{io::ErrorKind, net::TcpListener};

use budao_tools::{
    RawTool, Toolbox,
    builtin::{self, BuiltinOptions, Workspace},
    isolation,
};
use serde_json::{Value, json};

/// Addresses in a usual run, and with `BUDAO_FULL`.
const SOME: usize = 150;
const ALL: usize = 3_000;

/// Spellings of a host that is this machine.
fn hosts() -> Vec<String> {
    let mut all: Vec<String> = [
        "127.0.0.1",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "0.0.0.0",
        "0",
        "[::1]",
        "[::]",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "017700000001",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:0:0:1]",
        "127.0.0.1%00.example.com",
        "user@127.0.0.1",
        "example.com@127.0.0.1",
        "127.0.0.1#",
        "\u{ff11}27.0.0.1",
        "①②⑦.⓪.⓪.①",
        "127。0。0。1",
        "169.254.169.254",
        "100.100.100.200",
        "10.0.0.1",
        "192.168.0.1",
        "172.16.0.1",
        "100.64.0.1",
        "[fd00::1]",
        "[fe80::1]",
        "metadata.google.internal",
        "198.18.0.1",
        "224.0.0.1",
    ]
    .map(str::to_owned)
    .into();
    all.extend((2..30).map(|last| format!("127.0.0.{last}")));
    all
}

fn addresses(port: u16) -> Vec<String> {
    let mut all = Vec::new();
    for scheme in [
        "http",
        "https",
        "ws",
        "ftp",
        "gopher",
        "file",
        "HTTP",
        "http:\\\\",
        "//",
        "dict",
        "ldap",
        "jar:http",
    ] {
        for host in hosts() {
            for path in ["/", "/latest/meta-data/", "/x?y=z", "/schema.json#/a"] {
                let between = if scheme == "//" || scheme.ends_with('\\') { "" } else { "://" };
                all.push(format!("{scheme}{between}{host}:{port}{path}"));
            }
        }
    }
    all
}

/// A tool whose schema points there in every way a schema can.
fn schemas(address: &str) -> Vec<Value> {
    let inside = |value: Value| json!({"type": "object", "properties": {"a": value}});
    vec![
        inside(json!({"$ref": address})),
        inside(json!({"$dynamicRef": address})),
        inside(json!({"$id": address, "$ref": "#x"})),
        inside(json!({"allOf": [{"$ref": format!("{address}#/$defs/x")}]})),
        json!({"$schema": address, "type": "object"}),
        json!({"$id": address, "type": "object", "properties": {"a": {"$ref": "b.json"}}}),
        json!({"type": "object", "$vocabulary": {address: true}, "contentSchema": {"$ref": address}}),
    ]
}

/// Goal: no connection. Method: a listener on this machine, and addresses of it, in many spellings, in schemas of tools,
/// in paths and arguments of the file tools, in documents, skills and answers of peers; nobody may have knocked.
#[tokio::test]
async fn no_text_makes_the_program_connect() {
    let sink = TcpListener::bind("127.0.0.1:0").unwrap();
    sink.set_nonblocking(true).unwrap();
    let all = addresses(sink.local_addr().unwrap().port());
    let count = if std::env::var_os("BUDAO_FULL").is_some() { ALL } else { SOME };
    let room = tempfile::tempdir().unwrap();
    let workspace = Workspace::open(room.path()).unwrap();
    let tools = Toolbox::builder().build();
    let tools = tools.with_all(builtin::tools(&workspace, &BuiltinOptions::default())).unwrap();
    let mut cases = 0;
    // A stride without a common divisor: schemes, hosts and paths all have their turn.
    for address in (0..count).map(|index| &all[index * 37 % all.len()]) {
        for schema in schemas(address) {
            let tool = RawTool::new("it", "", schema, |arguments, _| async move { Ok(arguments) });
            if let Ok(toolbox) = Toolbox::builder().add(tool).map(budao_tools::Builder::build) {
                drop(toolbox.check_value("it", json!({"a": 1}), &Default::default()));
            }
        }
        for (tool, arguments) in [
            ("fs_read", json!({ "path": address })),
            ("fs_write", json!({ "path": address, "content": address })),
            ("fs_grep", json!({ "path": address, "pattern": "x" })),
            ("fs_glob", json!({ "cwd": address, "pattern": address })),
        ] {
            if let Ok(ready) = tools.check_value(tool, arguments, &Default::default()) {
                drop(ready.run(isolation::context()).await);
            }
        }
        let page = format!(
            "<html><head><link rel=stylesheet href=\"{address}\"><script src=\"{address}\"></script><base href=\"{address}\">\
             <meta http-equiv=refresh content=\"0;url={address}\"></head><body><img src=\"{address}\"><iframe src=\"{address}\">\
             ![i]({address}) <!DOCTYPE x SYSTEM \"{address}\"></body></html>"
        );
        budao_smcp::computer::probe::document(page.as_bytes());
        budao_smcp::computer::probe::skill(&format!(
            "---\ndescription: {address}\nlicense: !include {address}\n---\n"
        ));
        budao_smcp::wire::probe::everything(
            &json!(["client:get_dpe", {"dpe": address, "computer": "pc"}]).to_string(),
        );
        cases += 1;
    }
    match sink.accept() {
        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        Ok((_, from)) => panic!("somebody knocked: {from}"),
    }
    assert_eq!(cases, count);
    eprintln!("security T5: {count} addresses, in 14 places each; no connection");
}
